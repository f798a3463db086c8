"""Journal and manifests folded into what a run knows about its attempts: what a resume starts from, what a check reads.

records ──► one account per attempt: its steps, its end ──┐
manifests ──► what became of it ──────────────────────────┴──► open groups (resume), findings (flow/verify.py)
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from burnish.errors import StoreError
from burnish.flow.journal import Journal
from burnish.flow.manifest import Closed, Manifest, Member
from burnish.flow.records import (
    Begun,
    Ended,
    Found,
    Recut,
    Resumed,
    StepHead,
    SteppedData,
    Voided,
    attempt_of,
    decode_step,
)
from burnish.flow.source import group_index
from burnish.types import Attempt, Measured, PolicyVersion, Step


@dataclass(kw_only=True, slots=True)
class Account:
    """One attempt, as far as the records go.

    Example: Account(begun=begun, steps=[head], data=[b"..."], lives=[0], ended=None, voided=None)
    """

    begun: Begun
    steps: list[StepHead] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)  # the steps themselves, where they are kept
    lives: list[int] = field(default_factory=list)  # of each step, which life of the run sampled it
    ended: Ended | None = None
    voided: str | None = None

    @property
    def attempt(self) -> Attempt | None:
        """None while it has not ended. Raises StoreError when steps of it are missing."""
        if self.ended is None:
            return None
        if len(self.steps) != self.ended.num_steps:
            raise StoreError(f"the journal lacks steps of {self.begun.id}", evidence=f"{len(self.steps)} are there")
        return attempt_of(self.begun, tuple(map(decode_step, self.data)), self.ended)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ongoing:
    """An attempt that a resume continues: the steps it has, and its seed.

    Example: Ongoing(id="g000012.3", seed=8812, steps=(step,))
    """

    id: str
    seed: int
    steps: tuple[Step, ...]


@dataclass(kw_only=True, slots=True)
class OpenGroup:
    """A group that was begun and never closed.

    Example: OpenGroup(finished={0: attempt}, ongoing={1: ongoing}, num_ids={0: 1, 1: 2})
    """

    finished: dict[int, Attempt] = field(default_factory=dict)  # by member
    ongoing: dict[int, Ongoing] = field(default_factory=dict)
    num_ids: dict[int, int] = field(default_factory=dict)  # ids that each member's attempts have used up


@dataclass(kw_only=True, slots=True)
class ResumePoint:
    """What a life of a run goes on from.

    Example: ResumePoint(life=1, step=10, closed={0, 1, 2}, groups={3: OpenGroup()})
    """

    life: int = 0
    step: PolicyVersion = 0
    checkpoint: str | None = None
    closed: set[int] = field(default_factory=set)
    groups: dict[int, OpenGroup] = field(default_factory=dict)
    quarantine: dict[str, str] = field(default_factory=dict)
    voided: dict[str, list[str]] = field(default_factory=dict)  # reason -> attempts that cannot be used again
    recut: list[Recut] = field(default_factory=list)

    @property
    def num_voided(self) -> int:
        return sum(map(len, self.voided.values()))

    def write(self, journal: Journal) -> None:
        """Puts the beginning of the new life into the journal. Flush it before anything else is done."""
        journal.append(Resumed(life=self.life, step=self.step))
        for reason, ids in self.voided.items():
            journal.append(Voided(ids=tuple(ids), reason=reason))
        for cut in self.recut:
            journal.append(cut)


class Books:
    """The journal, folded: an account per attempt, in the order in which they began, and the lives of the run."""

    def __init__(
        self, *, without: Iterable[int] = (), keep_steps: bool = True, on_problem: Callable[[str], None]
    ) -> None:
        """`without`: groups, by index, whose attempts are left out. `keep_steps`: not only their heads; memory then
        grows with the tokens. `on_problem` hears of what cannot be."""
        self.accounts: dict[str, Account] = {}
        self.resumes: list[Resumed] = []
        self.num_regenerated_tokens = 0  # of steps that another one took the place of
        self._skipped = frozenset(without)
        self._keep_steps = keep_steps
        self._on_problem = on_problem

    async def read(self, records: AsyncIterator[Found]) -> None:
        async for record in records:
            if isinstance(record, Resumed):
                self.resumes.append(record)
            elif isinstance(record, Voided):
                for id in record.ids:
                    if not self._is_skipped(id):
                        self._void(id, record.reason)
            elif not self._is_skipped(record.id):
                self._tell(record)

    def void_from(self, life: int) -> PolicyVersion | None:
        """The first version that never existed for what this life sampled; None when all of its versions still do."""
        later = [resume.step for resume in self.resumes[life:]]
        return min(later) + 1 if later else None

    def _void(self, id: str, reason: str) -> None:
        account = self.accounts.get(id)
        if account is None:
            self._on_problem(f"{id}: voided ({reason}), but it never began")
        elif account.voided is not None:
            self._on_problem(f"{id}: voided twice ({account.voided}, {reason})")
        else:
            account.voided = reason

    def _tell(self, record: Begun | SteppedData | Ended | Recut) -> None:
        account = self.accounts.get(record.id)
        if isinstance(record, Begun):
            if account is not None:
                self._on_problem(f"{record.id}: began twice")
            self.accounts[record.id] = Account(begun=record)
            return
        if account is None:
            self._on_problem(f"{record.id}: has a {type(record).__name__} record, but it never began")
            return
        keep = record.index if isinstance(record, SteppedData) else record.num_steps
        if account.ended is not None:
            self._on_problem(f"{record.id}: goes on after its end")
        elif keep > len(account.steps):
            self._on_problem(f"{record.id}: step {len(account.steps)} is missing")
        else:
            self._go_on(account, record, keep)

    def _go_on(self, account: Account, record: SteppedData | Ended | Recut, keep: int) -> None:
        self.num_regenerated_tokens += sum(len(step.versions) for step in account.steps[keep:])
        del account.steps[keep:], account.lives[keep:], account.data[keep:]
        if isinstance(record, SteppedData):
            account.steps.append(record.head())
            account.lives.append(len(self.resumes))
            if self._keep_steps:
                account.data.append(bytes(record.step))
        elif isinstance(record, Ended):
            account.ended = record

    def _is_skipped(self, id: str) -> bool:
        return bool(self._skipped) and group_index(id.partition(".")[0]) in self._skipped


def closed_groups(manifests: Iterable[Manifest]) -> dict[int, Closed]:
    """The closed groups by index. Raises StoreError for one that was closed twice."""
    closed: dict[int, Closed] = {}
    for manifest in manifests:
        for group in manifest.closed:
            if closed.setdefault(group_index(group.group), group) is not group:
                raise StoreError(f"manifest {manifest.number} closes {group.group} a second time")
    return closed


async def resume_point(records: AsyncIterator[Found], manifests: tuple[Manifest, ...]) -> ResumePoint:
    """What the next life starts from. Finished attempts of open groups are used, running ones are continued.

    Not used are attempts, or the steps of one, that versions sampled which were never committed, and attempts that
    were not measured: others take their places. A running attempt is continued after its last step that has a
    snapshot of its sandbox; without one it begins anew.
    """
    last = manifests[-1] if manifests else None
    point = ResumePoint(step=last.step if last else 0, checkpoint=last.checkpoint if last else None)
    point.closed = set(closed_groups(manifests))
    point.quarantine = dict(last.quarantine) if last else {}
    books = Books(without=point.closed, on_problem=_corrupt)
    await books.read(records)
    point.life = 1 + len(books.resumes)
    for account in books.accounts.values():
        _place(account, point)
    return point


def _corrupt(problem: str) -> None:
    raise StoreError(f"the journal is corrupt: {problem}")


def _place(account: Account, point: ResumePoint) -> None:
    begun = account.begun
    group = point.groups.setdefault(group_index(begun.group), OpenGroup())
    group.num_ids[begun.member] = group.num_ids.get(begun.member, 0) + 1
    if account.voided is not None:
        return
    if account.ended is not None:
        attempt = account.attempt
        assert attempt is not None
        if not isinstance(attempt.outcome, Measured):
            point.voided.setdefault("unmeasured", []).append(begun.id)
        elif any(version > point.step for step in account.steps for version in step.versions):
            point.voided.setdefault("resume_orphan", []).append(begun.id)
        else:
            group.finished[begun.member] = attempt
        return
    num_steps = _num_continued(account.steps, point.step)
    point.recut.append(Recut(id=begun.id, num_steps=num_steps))
    steps = tuple(map(decode_step, account.data[:num_steps]))
    group.ongoing[begun.member] = Ongoing(id=begun.id, seed=begun.seed, steps=steps)


def _num_continued(steps: list[StepHead], step: PolicyVersion) -> int:
    """Steps that committed versions sampled, up to the last one whose sandbox can be restored."""
    num = next((n for n, s in enumerate(steps) if any(version > step for version in s.versions)), len(steps))
    while num and steps[num - 1].snapshot is None:
        num -= 1
    return num


def member_counts(closed: Iterable[Closed]) -> dict[str, int]:
    """Attempts of closed groups by what became of them; a dropped one by the reason of its group.

    Example: member_counts(closed) == {"trained": 120, "no_signal": 40, "unmeasured": 3}
    """
    counts: dict[str, int] = {}
    for group in closed:
        for member in group.members.values():
            name = _fate_name(group, member)
            counts[name] = counts.get(name, 0) + 1
    return counts


def _fate_name(group: Closed, member: Member) -> str:
    return str(group.drop) if member.fate == "dropped" else member.fate
