"""Configuration: a recipe's keys, their types and their defaults, as frozen models (invariant I9).

Every key of a recipe is a field below; there is no other list. The string under a field is its documentation, and
docs/configuration.md is made from it (`python -m burnish.config_reference`). Reading a recipe file is `config_load`'s.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from burnish.config_yaml import write_yaml

RESOLVED_FILE = "config.yaml"
"""The resolved recipe in a run directory."""

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NaturalFloat = Annotated[float, Field(ge=0.0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """Unknown keys are refused, values are frozen, NaN and infinity are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class ModelConfig(Section):
    """Which weights are trained."""

    path: Text = "smollm2-135m-instruct"
    """A Hugging Face model directory, or the name of the built-in model."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the working copy; the learner keeps fp32 master weights. A CPU without instructions for bfloat16 computes in
    float32 instead, which is a hundred times as fast there."""
    max_context_tokens: Positive = 1024
    """Prompt, answers and observations of one attempt together."""


class TasksConfig(Section):
    """Where work comes from."""

    train: Text = "builtin:train"
    """Tasks to train on: `builtin:train`, `builtin:heldout`, `humaneval`, or the path of a JSONL file."""
    heldout: Text = "builtin:heldout"
    """Tasks to measure on, named the same way."""
    bands: Annotated[tuple[Literal["easy", "medium", "hard"], ...], Field(min_length=1)] = ("easy", "medium", "hard")
    """Difficulty bands to train on, and of the held-out families to measure on."""
    max_tasks: Positive | None = None
    """Only the first so many training tasks, for a quick look; null takes all."""


class AgentConfig(Section):
    """How one attempt goes."""

    max_turns: Positive = 2
    """Answers that an attempt may give; after each but the last it sees what the visible tests printed."""
    max_new_tokens: Positive = 96
    """Sampled tokens per turn."""
    temperature: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0
    """Of the softmax that training attempts are sampled from."""


class EngineConfig(Section):
    """The local inference engine."""

    num_slots: Positive = 48
    """Sequences decoded together."""
    num_threads: Positive | None = None
    """CPU threads; null takes all cores."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model computes."""
    request_timeout_s: PositiveFloat = 300.0
    """A completion that takes longer is an engine failure."""
    stall_timeout_s: PositiveFloat = 120.0
    """An engine that has requests and samples no token for so long hangs; it is killed and started again."""


class SandboxConfig(Section):
    """Where actions run and where grading happens."""

    backend: Literal["process", "gvisor", "memory"] = "process"
    """`process`: Linux namespaces; `gvisor`: a kernel of its own in user space (docs/backends.md), slower; `memory`: a
    fake without isolation, for tests."""
    max_live: Positive = 64
    """Attempts under way at once, each with a sandbox of its own; grading adds a short-lived one per ended attempt."""


class RewardConfig(Section):
    """What a verified attempt is worth: 1 when every test passes."""

    partial: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """An attempt that fails is worth this times the share of its tests that pass. Gives groups without a solution a
    signal; pass rates never count it."""


class FlowConfig(Section):
    """From attempts to batches."""

    groups_per_step: Positive = 6
    """Tasks attempted for one optimizer step."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Attempts at one task that are compared with each other."""
    max_lag: Natural = 0
    """Optimizer steps that a trained token may be old; 0 is synchronous."""
    overdue: Literal["finish", "recut"] = "finish"
    """What becomes of attempts that outlive `max_lag`. `finish`: they go on under newer weights, and tokens past the
    bound are context that is not trained; `recut`: the turn under way is sampled again by the newest weights."""
    oversample: Natural = 0
    """More attempts than a group needs; the slowest are cancelled when it is complete. Favours short attempts, by how
    much the report says."""
    max_refills: Natural = 2
    """Attempts of one group that may take the places of unmeasured ones."""
    short_groups: Literal["train", "drop"] = "train"
    """Groups that stay incomplete: trained with the members that they have, or dropped."""
    max_step_tokens: Positive | None = None
    """A step closes with fewer groups when more sampled tokens than this would be in it; null sets no limit."""
    family_weights: dict[str, PositiveFloat] = {}
    """How task families share the engine, by sampled tokens; 1 for those not named. None starves."""
    max_attempt_retries: Natural = 2
    """New tries after an infrastructure failure."""
    attempt_timeout_s: PositiveFloat = 600.0
    """An attempt that takes longer is given up as unmeasured."""


class LearnerConfig(Section):
    """The optimizer step."""

    lr: PositiveFloat = 2e-5
    """AdamW's learning rate after the warm-up."""
    warmup_steps: Natural = 2
    """Steps before the full rate; it rises linearly."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """AdamW's decay of the first and the second moment."""
    weight_decay: NaturalFloat = 0.0
    """AdamW's decoupled weight decay."""
    max_grad_norm: PositiveFloat = 1.0
    """The gradient is scaled down to this L2 norm."""
    clip_low: Fraction = 0.2
    """A probability ratio below 1 - clip_low is clipped."""
    clip_high: NaturalFloat = 0.28
    """A probability ratio above 1 + clip_high is clipped (DAPO's clip-higher)."""
    loss_norm: Literal["token", "sequence"] = "token"
    """`token`: mean over the batch's tokens (DAPO); `sequence`: mean of each attempt's mean (GRPO as published)."""
    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    """How rewards become advantages: scaled by the group's deviation, only centred, or leave-one-out."""
    importance_cap: Annotated[float, Field(gt=1.0)] = 2.0
    """Bound of the probability ratio of a token with a negative advantage, which clipping leaves open (dual clip)."""
    num_threads: Positive | None = None
    """CPU threads; null takes all cores."""
    step_timeout_s: PositiveFloat = 1800.0
    """A step that takes longer is a learner failure."""


class EvaluateConfig(Section):
    """Held-out evaluation before the first step and after the last."""

    samples_per_task: Positive = 2
    """Attempts per held-out task."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 1.0
    """Of the evaluation's sampling; 0 is greedy."""
    every_steps: Positive | None = None
    """Also evaluate after every so many steps; null only before and after."""


class TrainConfig(Section):
    """How long, and how often state is committed."""

    num_steps: Positive = 40
    """Optimizer steps."""
    time_limit_s: PositiveFloat | None = None
    """No new step is begun when it and the last evaluation would not fit; null sets no limit."""
    checkpoint_every: Positive = 10
    """Steps between checkpoints."""
    keep_checkpoints: Positive = 2
    """Newest checkpoints that stay on disk."""


class RunConfig(Section):
    """One run, as a recipe describes it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
    """Begins the run directory's name."""
    seed: Natural = 0
    """Of task order and sampling."""
    runs_dir: Path = Path("runs")
    """The folder that run directories are made in. Not part of the digest: a run may be moved."""
    store: Text | None = None
    """An object store for journal, manifests and snapshots: `s3://bucket/prefix` or a folder; null is the run
    directory. Not part of the digest."""
    model: ModelConfig = ModelConfig()
    tasks: TasksConfig = TasksConfig()
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = EngineConfig()
    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()
    flow: FlowConfig = FlowConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    train: TrainConfig = TrainConfig()

    @model_validator(mode="after")
    def _keys_agree(self) -> "RunConfig":
        answers = self.agent.max_turns * self.agent.max_new_tokens
        if answers >= self.model.max_context_tokens:
            raise PydanticCustomError(
                "keys_disagree",
                "agent.max_turns * agent.max_new_tokens = {answers} leaves no room for a prompt in "
                "model.max_context_tokens = {context}",
                {
                    "answers": answers,
                    "context": self.model.max_context_tokens,
                    "fix": "lower agent.max_new_tokens or agent.max_turns, or raise model.max_context_tokens",
                    "key": "agent.max_new_tokens",
                },
            )
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalOptions:
    """What `burnish eval` was asked for. Either `model` or both `endpoint` and `endpoint_model` are set.

    Example: EvalOptions(suite="humaneval", model="runs/quickstart-1/checkpoints/final", samples=1, temperature=0.0)
    """

    suite: str  # "humaneval", "heldout", "train", or the path of a JSONL file
    model: str | None = None  # a Hugging Face model directory, or the name of the built-in model
    endpoint: str | None = None  # base URL of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1
    endpoint_model: str | None = None  # the name that the server knows the model by
    api_key_env: str | None = None  # the environment variable that holds the server's key
    samples: int = 1  # attempts per task
    temperature: float = 0.0  # 0 is greedy
    turns: int = 1
    max_new_tokens: int = 512  # per turn
    out: Path | None = None  # where the result is written as JSON
    compare: Path | None = None  # an earlier result, for a paired comparison


_NOT_IN_DIGEST = {"runs_dir", "store"}


def resolved_yaml(config: RunConfig) -> str:
    """All keys with their values, in the order above; reading it again gives an equal config."""
    return write_yaml(config.model_dump(mode="json"))


def config_digest(config: RunConfig) -> str:
    """sha256 (64 hex digits) over the canonical JSON of everything but where the run lies."""
    body = config.model_dump(mode="json", exclude=_NOT_IN_DIGEST)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def diff_configs(old: RunConfig, new: RunConfig) -> list[str]:
    """The keys that differ, one line each, `learner.lr: 2e-05 -> 1e-05`. Empty exactly where the digests are equal."""
    before = _flat(old.model_dump(mode="json", exclude=_NOT_IN_DIGEST))
    after = _flat(new.model_dump(mode="json", exclude=_NOT_IN_DIGEST))
    return [
        f"{key}: {json.dumps(before.get(key))} -> {json.dumps(after.get(key))}"
        for key in before | after
        if before.get(key) != after.get(key)
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return leaves
