"""The nouns of burnish. Every arrow of the picture in ARCHITECTURE.md carries one of these.

All are frozen and keyword-only; sequences are tuples. `None` means "not there", never zero. Shapes use this legend:
`P` prompt tokens appended before a turn, `T` tokens sampled in a turn, `L` tokens of a packed row, `S` its segments.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

PolicyVersion = int
"""A counter that only a committed optimizer step advances. 0 is the model as it was loaded."""

StopReason = Literal[
    "passed_visible",  # the agent's last action passed every visible example
    "max_turns",  # the agent used all its turns
    "no_action",  # the model's answer held nothing that could be run, and no turn is left to say so
    "context_full",  # the next turn would not fit the model's context
    "cancelled",  # the run ended first
    "failed",  # a boundary failed; the outcome is Unmeasured
]
FinishReason = Literal["stop", "length", "cancelled"]
Band = Literal["easy", "medium", "hard"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one command in a sandbox may use. The result says which limit was hit; one that cannot be held is refused.

    Example: Limits(wall_s=5.0, memory_bytes=256 << 20, num_pids=64, output_bytes=64 << 10, disk_bytes=64 << 20)
    """

    wall_s: float = 5.0
    memory_bytes: int = 256 << 20
    num_pids: int = 64
    output_bytes: int = 64 << 10  # per stream; head and tail are kept
    disk_bytes: int = 64 << 20
    num_cpus: float | None = None  # of the machine's processors, all processes together; None is no bound
    cpu_s: float | None = None  # CPU time of a command and all it starts; None is no bound


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One check of a programming task as plain data: an expression, and the Python literal it must equal.

    Example: Case(expr="add(2, 3)", expected="5")
    """

    expr: str
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What travels: everything about a task that the policy and the acting sandbox may see.

    Example: Task(id="add/0", family="add", band="easy", instruction="Write add(a, b) ...", entry_point="add",
        examples=(Case(expr="add(2, 3)", expected="5"),))
    """

    id: str
    family: str  # tasks of one family share an idea; splits and clustered statistics are by family
    instruction: str
    entry_point: str  # the name that the solution must define
    band: Band = "easy"
    examples: tuple[Case, ...] = ()  # visible; shown, and run after every attempt
    files: Mapping[str, str] = field(default_factory=dict)  # public files placed in the sandbox: relative path -> text
    limits: Limits = Limits()
    network: Mapping[str, Sequence[str]] = field(default_factory=dict)  # "act" or "grade" -> rules; left out, none

    @property
    def digest(self) -> str:
        """sha256 (64 hex digits) over all public content; a certificate or a journal entry binds to it."""
        body = [self.id, self.family, self.instruction, self.entry_point, self.band]
        cases = [[case.expr, case.expected] for case in self.examples]
        limits = [getattr(self.limits, name) for name in self.limits.__slots__]
        network = sorted((phase, list(rules)) for phase, rules in self.network.items())
        text = json.dumps([body, cases, sorted(self.files.items()), limits, network], ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    """What stays: the material that only `reward/` and `evaluate/certify` may open.

    Example: Hidden(task_id="add/0", cases=(Case(expr="add(-1, 1)", expected="0"),), reference="def add(a, b): ...")
    """

    task_id: str
    reference: str  # a solution that passes; Python source
    cases: tuple[Case, ...] = ()
    check: str | None = None  # Python source defining check(candidate), asserts inside (HumanEval's form)
    preamble: str = ""  # source that `check` needs beside it, e.g. helper functions of the prompt


class Vault:
    """Hidden material by task id. Held by graders; a guard test keeps everybody else from calling `open_hidden`."""

    def __init__(self, hidden: Mapping[str, Hidden]) -> None:
        self._hidden = dict(hidden)

    def open_hidden(self, task_id: str) -> Hidden:
        """Raises KeyError for a task without hidden material."""
        return self._hidden[task_id]

    def __len__(self) -> int:
        return len(self._hidden)

    def merged(self, other: "Vault") -> "Vault":
        """A vault over both; raises ValueError where both know one id."""
        both = self._hidden.keys() & other._hidden.keys()
        if both:
            raise ValueError(f"two tasks share an id: {sorted(both)[0]!r}")
        return Vault({**self._hidden, **other._hidden})


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSet:
    """Tasks in a fixed order and the vault with their hidden material.

    Example: TaskSet(name="builtin:train", tasks=(task,), vault=Vault({task.id: hidden}))
    """

    name: str
    tasks: tuple[Task, ...]
    vault: Vault


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are drawn. A completion's `logprobs` are under the distribution sampled (temperature applied).

    Example: Sampling(max_new_tokens=96, temperature=1.0, stop_ids=(2,), seed=7)
    """

    max_new_tokens: int
    temperature: float = 1.0  # 0 is greedy; logprobs are then those of temperature 1
    top_p: float = 1.0  # training needs 1.0: a truncated distribution has no honest logprobs for the learner
    top_k: int = 0  # 0: off
    stop_ids: tuple[int, ...] = ()  # the stop token is kept as the last sampled token
    stop_strings: tuple[str, ...] = ()  # checked on the decoded text of the sampled tokens
    seed: int | None = None  # one request with one seed draws the same uniforms whatever shares its batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What an engine returns for one prompt.

    Example: Completion(token_ids=(16, 2), logprobs=(-0.1, -0.7), versions=(3, 4), finish="stop")
    """

    token_ids: tuple[int, ...]  # [T], as sampled
    logprobs: tuple[float, ...]  # [T], natural log, under the version that sampled each
    versions: tuple[PolicyVersion, ...]  # [T]; differ inside one completion when weights changed between tokens
    finish: FinishReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """What the agent made of the sampled text.

    Example: Action(kind="code", text="def add(a, b):\\n    return a + b\\n")
    """

    kind: Literal["code", "none"]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Where a step's time went, in seconds of wall time.

    Example: Usage(generate_s=0.8, act_s=0.05)
    """

    generate_s: float = 0.0
    act_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One turn of an attempt.

    Example: Step(prompt_ids=(1, 9690), output_ids=(16, 2), logprobs=(-0.1, -0.7), versions=(3, 3), finish="stop",
        action=Action(kind="none", text=""), observation=None)
    """

    prompt_ids: tuple[int, ...]  # [P] the token *delta* the model saw before sampling
    output_ids: tuple[int, ...]  # [T] sampled; trained as they are (I4)
    logprobs: tuple[float, ...]  # [T] under the version of each token
    versions: tuple[PolicyVersion, ...]  # [T]
    finish: FinishReason
    action: Action
    observation: str | None  # what the environment answered; None when it was not asked
    usage: Usage = Usage()
    snapshot: str | None = None  # reference of the sandbox state after the step, if taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """One attempt at one task: its steps and how it ended.

    A branch names its parent and the step it left from, so that a set of trajectories is a tree; without branches
    `parent_id` is None.

    Example: Trajectory(id="g3.0", group_id="g3", task_id="add/0", family="add", steps=(), stop_reason="cancelled")
    """

    id: str
    group_id: str
    task_id: str
    family: str
    steps: tuple[Step, ...]
    stop_reason: StopReason
    parent_id: str | None = None
    branch_step: int | None = None
    wall_s: float = 0.0

    @property
    def num_output_tokens(self) -> int:
        return sum(len(step.output_ids) for step in self.steps)

    @property
    def oldest_version(self) -> PolicyVersion | None:
        """The smallest version among the sampled tokens; None for an attempt that sampled nothing."""
        return min((v for step in self.steps for v in step.versions), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The attempt was verified. `reward` is what the learner sees, `scores` what it was made of.

    Example: Measured(scores={"hidden_passed": 1.0, "visible_passed": 1.0}, reward=1.0)
    """

    scores: Mapping[str, float]
    reward: float
    kind: Literal["measured"] = "measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmeasured:
    """Something outside the attempt broke. There is no number that stands for this (I1).

    Example: Unmeasured(boundary="sandbox", cause="create: host died", evidence="signal 9")
    """

    boundary: str
    cause: str
    evidence: str = ""
    kind: Literal["unmeasured"] = "unmeasured"


Outcome = Measured | Unmeasured


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A trajectory and what it was worth.

    Example: Attempt(trajectory=trajectory, outcome=Measured(scores={}, reward=1.0))
    """

    trajectory: Trajectory
    outcome: Outcome
    grade_s: float = 0.0  # wall time that verification took


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The attempts that share a task and are compared with each other. Only measured ones form the baseline.

    Example: Group(id="g3", task_id="add/0", family="add", attempts=(a, b))
    """

    id: str
    task_id: str
    family: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow:
    """A tree of token sequences in one row, so that a shared prompt is computed once.

    Segment 0 is a root; token i may attend to token j iff j <= i and j's segment is an ancestor of i's segment or the
    segment itself. All of `[L]` unless stated.

    Example: a prompt (5, 6) with the continuations (7,) and (8,):
        PackedRow(ids=(5, 6, 7, 8), positions=(0, 1, 2, 2), segments=(0, 0, 1, 2), segment_parents=(-1, 0, 0),
            predecessors=(-1, 0, 1, 1), loss_mask=(False, False, True, True), logprobs=(0.0, 0.0, -0.5, -1.2),
            versions=(-1, -1, 4, 4), advantages=(0.0, 0.0, 1.0, -1.0))
    """

    ids: tuple[int, ...]
    positions: tuple[int, ...]  # depth on the path from the root
    segments: tuple[int, ...]
    segment_parents: tuple[int, ...]  # [S]; -1 for a root
    predecessors: tuple[int, ...]  # index of the token before this one on its path; -1 at a root's first token
    loss_mask: tuple[bool, ...]  # True where the token was sampled and is trained
    logprobs: tuple[float, ...]  # behaviour logprobs; 0.0 where loss_mask is False
    versions: tuple[PolicyVersion, ...]  # -1 where loss_mask is False
    advantages: tuple[float, ...]  # 0.0 where loss_mask is False


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One optimizer step's worth of data, and the ids it consumes (I2).

    Example: Batch(step=4, rows=(row,), temperature=1.0, trajectory_ids=("g3.0",), group_ids=("g3",))
    """

    step: int  # the optimizer step this batch is for; the learner must be at version `step` to take it
    rows: tuple[PackedRow, ...]
    temperature: float  # of the behaviour distribution, so that the learner's logprobs mean the same thing
    trajectory_ids: tuple[str, ...]
    group_ids: tuple[str, ...]

    @property
    def num_loss_tokens(self) -> int:
        return sum(sum(row.loss_mask) for row in self.rows)
