"""What the journal holds: one record per thing that happened to an attempt, in the order in which it happened.

An attempt begins once, its steps follow, it ends once. `Recut` and `Voided` are written by a resume, before anything
else happens in the new life, so that nobody who reads the records later has to know what was committed when.
Which attempts were trained or dropped is not here but in the manifests (`flow/manifest.py`): only a commit consumes.
"""

import msgspec

from burnish.types import Attempt, Measured, PolicyVersion, Step, StopReason, Trajectory, Unmeasured


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="begun", tag_field="kind"):
    """An attempt was dispatched.

    Example: Begun(id="g000012.3", group="g000012", member=3, task_id="add/0", family="add", digest="9f...", seed=8812)
    """

    id: str
    group: str
    member: int
    task_id: str
    family: str
    digest: str  # of the task's public content
    seed: int


class Stepped(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="kind"):
    """A turn was finished. It takes the place of an older step of this number, and of all after that one.

    Example: Stepped(id="g000012.3", index=0, step=step)
    """

    id: str
    index: int
    step: Step


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", tag_field="kind"):
    """An attempt is over, and was measured or not; exactly one of the two is there.

    Example: Ended(id="g000012.3", num_steps=2, stop_reason="max_turns", measured=Measured(scores={}, reward=1.0))
    """

    id: str
    num_steps: int
    stop_reason: StopReason
    wall_s: float = 0.0
    grade_s: float = 0.0
    measured: Measured | None = None
    unmeasured: Unmeasured | None = None


class Recut(msgspec.Struct, frozen=True, kw_only=True, tag="recut", tag_field="kind"):
    """A resume continues this attempt after its first `num_steps` steps.

    Example: Recut(id="g000012.3", num_steps=1)
    """

    id: str
    num_steps: int


class Voided(msgspec.Struct, frozen=True, kw_only=True, tag="voided", tag_field="kind"):
    """Attempts that will never be used, for a counted reason; others take their places.

    Example: Voided(ids=("g000012.3",), reason="resume_orphan")
    """

    ids: tuple[str, ...]
    reason: str


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag="resumed", tag_field="kind"):
    """A new life of the run began from this committed step; later versions never existed.

    Example: Resumed(life=1, step=10)
    """

    life: int
    step: PolicyVersion


class StepHead(msgspec.Struct, frozen=True):
    """Of a step that is read back, what is needed of every one.

    Example: StepHead(versions=(3, 3, 4), snapshot="sha256:9f...")
    """

    versions: tuple[PolicyVersion, ...]
    snapshot: str | None = None


class SteppedData(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="kind"):
    """`Stepped` as it is read: most of a journal is tokens of steps that nobody wants back.

    Example: SteppedData(id="g000012.3", index=0, step=msgspec.Raw(data))
    """

    id: str
    index: int
    step: msgspec.Raw

    def head(self) -> StepHead:
        return _HEAD.decode(self.step)

    def whole(self) -> Step:
        return decode_step(self.step)


Record = Begun | Stepped | Ended | Recut | Voided | Resumed
"""What is written."""
Found = Begun | SteppedData | Ended | Recut | Voided | Resumed
"""What is read."""

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Found)
_HEAD = msgspec.msgpack.Decoder(StepHead)
_STEP = msgspec.msgpack.Decoder(Step)


def decode_step(data: bytes | msgspec.Raw) -> Step:
    """Raises msgspec.DecodeError for what is no step."""
    return _STEP.decode(data)


def ended(attempt: Attempt) -> Ended:
    """The record of an attempt's end; its steps have records of their own."""
    outcome = attempt.outcome
    return Ended(
        id=attempt.trajectory.id,
        num_steps=len(attempt.trajectory.steps),
        stop_reason=attempt.trajectory.stop_reason,
        wall_s=attempt.trajectory.wall_s,
        grade_s=attempt.grade_s,
        measured=outcome if isinstance(outcome, Measured) else None,
        unmeasured=outcome if isinstance(outcome, Unmeasured) else None,
    )


def attempt_of(begun: Begun, steps: tuple[Step, ...], end: Ended) -> Attempt:
    """The attempt again. Raises ValueError for an end without an outcome."""
    outcome = end.measured or end.unmeasured
    if outcome is None:
        raise ValueError(f"{end.id} ended without an outcome")
    trajectory = Trajectory(
        id=begun.id,
        group_id=begun.group,
        task_id=begun.task_id,
        family=begun.family,
        steps=steps,
        stop_reason=end.stop_reason,
        wall_s=end.wall_s,
    )
    return Attempt(trajectory=trajectory, outcome=outcome, grade_s=end.grade_s)
