"""Is every attempt of a run accounted for exactly once? Answered from its files alone (I1, I2, I3)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from burnish.errors import StoreError
from burnish.flow.journal import Tail, read_journal
from burnish.flow.ledger import Account, Books, closed_groups, member_counts
from burnish.flow.manifest import Closed, Commits, Manifest, Member
from burnish.flow.records import StepHead
from burnish.flow.source import group_index
from burnish.store import RunStore
from burnish.types import PolicyVersion

MAX_FINDINGS = 1000


@dataclass(kw_only=True, slots=True)
class Accounting:
    """What a run's attempts came to, and what is wrong with the books.

    Example: Accounting(num_attempts=160, fates={"trained": 120, "no_signal": 40}, findings=[])
    """

    num_attempts: int = 0
    num_groups: int = 0
    num_commits: int = 0
    num_steps: int = 0
    num_lives: int = 1
    num_trained_tokens: int = 0
    num_regenerated_tokens: int = 0  # of steps that were sampled again
    num_open: int = 0  # begun and not closed yet: the run goes on, or can be resumed
    ended: str | None = None  # why the run is over
    torn: str | None = None  # the journal's last segment, when a crash cut it
    fates: dict[str, int] = field(default_factory=dict)  # what became of attempts -> how many
    findings: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.findings


async def verify_run(store: RunStore) -> Accounting:
    """Reads manifests and journal once. What is wrong is a finding; a store that cannot be read is a StoreError."""
    found = Accounting()
    try:
        commits = await Commits.read(store)
        closed = closed_groups(commits.manifests)
    except StoreError as error:
        found.findings.append(error.cause)
        return found
    found.num_commits, found.num_steps = len(commits.manifests), commits.step
    found.ended = commits.last.ended if commits.last else None
    tail = Tail()
    books = Books(keep_steps=False, on_problem=found.findings.append)
    try:
        await books.read(read_journal(store, tail))
    except StoreError as error:
        found.findings.append(error.cause)
        return found
    found.torn = tail.torn
    _settle(found, books, closed, commits.manifests)
    for problem in _problems(books, closed, commits.manifests):
        found.findings.append(problem)
        if len(found.findings) >= MAX_FINDINGS:
            break
    return found


def _settle(found: Accounting, books: Books, closed: dict[int, Closed], manifests: tuple[Manifest, ...]) -> None:
    found.num_attempts = len(books.accounts)
    found.num_lives = 1 + len(books.resumes)
    found.num_groups = len(closed)
    found.num_regenerated_tokens = books.num_regenerated_tokens
    found.fates = member_counts(closed.values())
    found.num_trained_tokens = sum(m.num_tokens for group in closed.values() for m in group.members.values())
    found.num_trained_tokens += sum(sum(r.num_tokens.values()) for m in manifests for r in m.replayed)
    listed = {id for group in closed.values() for id in group.members}
    for id, account in books.accounts.items():
        if account.voided is not None:
            found.fates[account.voided] = found.fates.get(account.voided, 0) + 1
        elif id not in listed:
            found.num_open += 1


def _problems(books: Books, closed: dict[int, Closed], manifests: tuple[Manifest, ...]) -> Iterator[str]:
    yield from _of_commits(manifests)
    yield from _of_groups(books, closed, manifests)
    lag = {group.group: manifest.max_lag for manifest in manifests for group in manifest.closed}
    for group in closed.values():
        for id, member in group.members.items():
            account = books.accounts.get(id)
            if account is None:
                yield f"{id}: {member.fate} by {group.group}, but it never began"
                continue
            for problem in _of_member(books, account, group, member, lag[group.group]):
                yield f"{id}: {problem}"


def _of_commits(manifests: tuple[Manifest, ...]) -> Iterator[str]:
    step, life = 0, 0
    for manifest in manifests:
        steps = sorted({group.step for group in manifest.closed if group.step is not None})
        if steps != list(range(step + 1, manifest.step + 1)):
            yield f"manifest {manifest.number}: has the steps {steps}, and goes from step {step} to {manifest.step}"
        if manifest.life < life:
            yield f"manifest {manifest.number}: was written by life {manifest.life}, after one of life {life}"
        step, life = manifest.step, manifest.life
    for manifest in manifests[:-1]:
        if manifest.ended is not None and manifest.life == manifests[-1].life:
            yield f"manifest {manifest.number} ends the run ({manifest.ended}), but another one follows"


def _of_groups(books: Books, closed: dict[int, Closed], manifests: tuple[Manifest, ...]) -> Iterator[str]:
    begun = {group_index(account.begun.group) for account in books.accounts.values()}
    is_over = bool(manifests) and manifests[-1].ended is not None  # else a group may still wait for its first attempt
    highest = max(closed, default=-1)
    for index in range(highest if is_over else 0):
        if index not in closed and index not in begun:
            yield f"group {index} was skipped: groups up to {highest} are closed, and this one never began"
    tasks: dict[str, set[str]] = {}
    for account in books.accounts.values():
        tasks.setdefault(account.begun.group, set()).add(account.begun.task_id)
        listed = closed.get(group_index(account.begun.group))
        if listed is not None and account.voided is None and account.begun.id not in listed.members:
            yield f"{account.begun.id}: lost: its group is closed ({listed.drop or 'trained'}) without it"
    for name, ids in tasks.items():
        if len(ids) > 1:
            yield f"{name}: its attempts are about different tasks: {', '.join(sorted(ids))}"
    members = Counter(id for group in closed.values() for id in group.members)
    yield from (f"{id}: accounted for {num} times" for id, num in members.items() if num > 1)
    trained = {group.group for group in closed.values() if group.drop is None}
    for manifest in manifests:
        for replay in manifest.replayed:
            if replay.group not in trained:
                yield f"{replay.group}: replayed by step {replay.step}, but never trained"


def _of_member(books: Books, account: Account, group: Closed, member: Member, max_lag: int) -> Iterator[str]:
    """What an attempt's journal says against what the commit made of it."""
    if account.voided is not None:
        yield f"voided ({account.voided}) and {member.fate}"
        return
    if member.fate == "cancelled":
        return
    if account.ended is None:
        yield f"{member.fate}, but it never ended"
        return
    if len(account.steps) != account.ended.num_steps:
        yield f"{account.ended.num_steps - len(account.steps)} of its steps are missing"
    if account.ended.measured is None:
        if member.fate != "unmeasured":
            yield f"{member.fate}, but it was not measured (I1)"
        return
    if member.fate == "unmeasured":
        yield "counted as unmeasured, but it was measured"
    elif member.reward != account.ended.measured.reward:
        yield f"mislabelled: reward {account.ended.measured.reward} went into the books as {member.reward}"
    if (member.fate == "trained") != (group.drop is None and member.num_tokens > 0):
        yield f"{member.fate} with {member.num_tokens} tokens, in a group that was {group.drop or 'trained'}"
    if group.step is not None and group.drop is None:
        yield from _of_tokens(books, account, group.step, member, max_lag)


def _of_tokens(books: Books, account: Account, step: PolicyVersion, member: Member, max_lag: int) -> Iterator[str]:
    newest, oldest = step - 1, step - 1 - max_lag
    fresh = sum(version >= oldest for s in account.steps for version in s.versions)
    if fresh != member.num_tokens:
        yield f"{member.num_tokens} tokens were trained, {fresh} are within the lag bound of step {step} (I3)"
    for number, s in enumerate(account.steps):
        if any(version > newest for version in s.versions):
            yield f"step {number} was sampled by version {max(s.versions)}, which step {step} had not made"
        void = books.void_from(account.lives[number])
        if void is not None and _newest(s) >= void:
            yield f"step {number} was sampled by version {_newest(s)} of a life that was rolled back to {void - 1}"


def _newest(step: StepHead) -> PolicyVersion:
    return max(step.versions, default=-1)
