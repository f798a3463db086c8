"""Configuration: YAML in, a frozen `RunConfig` out, and errors that name the key (invariant I9).

Every key of a recipe is a field below; there is no other list. Unknown keys are errors with the closest known key.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(Section):
    """Which weights are trained."""

    path: str = "smollm2-135m-instruct"  # a Hugging Face model directory, or the name of the built-in model
    dtype: Literal["bfloat16", "float32"] = "bfloat16"  # of the working copy; the learner keeps fp32 master weights
    max_context_tokens: Positive = 1024


class TasksConfig(Section):
    """Where work comes from: `builtin:train`, `builtin:heldout`, `humaneval`, or the path of a JSONL file."""

    train: str = "builtin:train"
    heldout: str = "builtin:heldout"
    bands: tuple[Literal["easy", "medium", "hard"], ...] = ("easy", "medium", "hard")
    max_tasks: Positive | None = None  # the first so many, for a quick look


class AgentConfig(Section):
    """How one attempt goes."""

    max_turns: Positive = 2
    max_new_tokens: Positive = 96  # per turn
    temperature: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0


class EngineConfig(Section):
    """The local inference engine."""

    num_slots: Positive = 48  # sequences decoded together
    num_threads: Positive | None = None  # None: all cores
    device: Literal["cpu", "cuda"] = "cpu"
    request_timeout_s: Annotated[float, Field(gt=0)] = 300.0


class SandboxConfig(Section):
    """Where actions run and where grading happens."""

    backend: Literal["process", "memory"] = "process"
    max_live: Positive = 8


class FlowConfig(Section):
    """From attempts to batches."""

    groups_per_step: Positive = 6
    group_size: Annotated[int, Field(ge=2)] = 8
    max_lag: Annotated[int, Field(ge=0)] = 0  # versions; 0 is synchronous
    max_attempt_retries: Annotated[int, Field(ge=0)] = 2  # after an infrastructure failure
    attempt_timeout_s: Annotated[float, Field(gt=0)] = 600.0


class LearnerConfig(Section):
    """The optimizer step."""

    lr: Annotated[float, Field(gt=0)] = 2e-5
    warmup_steps: Annotated[int, Field(ge=0)] = 2
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    clip_low: Fraction = 0.2
    clip_high: Annotated[float, Field(ge=0)] = 0.28  # DAPO's clip-higher
    loss_norm: Literal["token", "sequence"] = "token"  # token: DAPO; sequence: GRPO as first published
    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    importance_cap: Annotated[float, Field(gt=0)] = 2.0  # truncated importance sampling between engine and learner
    num_threads: Positive | None = None
    step_timeout_s: Annotated[float, Field(gt=0)] = 1800.0


class EvaluateConfig(Section):
    """Held-out evaluation before the first step and after the last."""

    samples_per_task: Positive = 2
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 1.0
    every_steps: Positive | None = None


class TrainConfig(Section):
    """How long, and how often state is committed."""

    num_steps: Positive = 40
    time_limit_s: Annotated[float, Field(gt=0)] | None = (
        None  # no new step when it and the last evaluation would not fit
    )
    checkpoint_every: Positive = 10
    keep_checkpoints: Positive = 2


class RunConfig(Section):
    """One run, as a recipe describes it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]
    seed: Annotated[int, Field(ge=0)] = 0
    runs_dir: Path = Path("runs")
    model: ModelConfig = ModelConfig()
    tasks: TasksConfig = TasksConfig()
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = EngineConfig()
    sandbox: SandboxConfig = SandboxConfig()
    flow: FlowConfig = FlowConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    train: TrainConfig = TrainConfig()
