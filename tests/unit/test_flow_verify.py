"""The books of a run: clean ones are called clean, and every kind of wrong entry is found and named."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from burnish.bookkeeping import Bookkeeper, leftovers
from burnish.cli import app
from burnish.config import RunConfig
from burnish.errors import StoreError
from burnish.flow.buffer import Judged, StepGroups, judge
from burnish.flow.group import Ticket
from burnish.flow.journal import Journal, read_journal
from burnish.flow.ledger import resume_point
from burnish.flow.manifest import Commits, Manifest, Member, manifest_key
from burnish.flow.records import Resumed, Voided
from burnish.flow.verify import Accounting, verify_run
from burnish.reward.advantage import advantages
from burnish.run_dir import RunDir
from burnish.store import RunStore
from burnish.testing import make_attempt, make_task_set
from burnish.types import Attempt, Group, Unmeasured

TASK = make_task_set(1).tasks[0]


def group_of(index: int, *attempts: Attempt) -> Group:
    return Group(id=f"g{index:06d}", task_id=TASK.id, family=TASK.family, attempts=attempts)


def attempts_of(index: int, rewards: list[float], version: int) -> list[Attempt]:
    return [
        make_attempt(id=f"g{index:06d}.{member}", reward=reward, versions=(version,), answers=((4, 5), (6,)))
        for member, reward in enumerate(rewards)
    ]


def tell(books: Bookkeeper, attempt: Attempt) -> None:
    """All records of one attempt."""
    trajectory = attempt.trajectory
    member = int(trajectory.id[8])
    books.begin(Ticket(index=0, member=member, id=trajectory.id, group_id=trajectory.group_id, task=TASK, seed=1))
    for number, step in enumerate(trajectory.steps):
        books.step(trajectory.id, number, step)
    books.end(attempt)


def judged(group: Group) -> Judged:
    return judge(group, lambda rewards: advantages(rewards, estimator="grpo"))


async def small_run(store: RunStore) -> None:
    """Two steps, a dropped group, an unmeasured attempt; committed twice."""
    async with await Journal.open(store) as journal:
        books = Bookkeeper(journal, await Commits.read(store), max_lag=1, life=0)
        broken = make_attempt(id="g000000.2", outcome=Unmeasured(boundary="sandbox", cause="died"), answers=())
        first, second = [*attempts_of(0, [0, 1], 0), broken], attempts_of(1, [1, 1], 0)
        third = attempts_of(2, [1, 0], 1)
        for attempt in (*first, *second, *third):
            tell(books, attempt)
        books.trained(StepGroups(trained=(judged(group_of(0, *first)),), dropped=()), 1, oldest=-1)
        books.dropped(judged(group_of(1, *second)))
        await books.commit(step=1, checkpoint="step-000001")
        books.trained(StepGroups(trained=(judged(group_of(2, *third)),), dropped=()), 2, oldest=0)
        await books.commit(step=2, checkpoint="step-000002", ended="completed")


async def checked(store: RunStore) -> Accounting:
    return await verify_run(store)


async def test_books_that_are_right_are_clean_and_add_up() -> None:
    store = RunStore.at("memory:///")
    await small_run(store)
    found = await checked(store)
    assert (found.findings, found.num_open, found.ended) == ([], 0, "completed")
    assert found.fates == {"trained": 4, "no_signal": 2, "unmeasured": 1}
    assert (found.num_attempts, found.num_groups, found.num_commits, found.num_steps) == (7, 3, 2, 2)
    assert found.num_trained_tokens == 12


Change = Callable[[Manifest], Manifest]


def member(manifest: Manifest, place: int, id: str, entry: Member | None) -> Manifest:
    """With another entry for one attempt of the group at `place`; None strikes it out."""
    group = manifest.closed[place]
    members = {**group.members, id: entry} if entry else {k: v for k, v in group.members.items() if k != id}
    closed = list(manifest.closed)
    closed[place] = msgspec.structs.replace(group, members=members)
    return msgspec.structs.replace(manifest, closed=tuple(closed))


def group(manifest: Manifest, place: int, **changes: object) -> Manifest:
    closed = list(manifest.closed)
    closed[place] = msgspec.structs.replace(closed[place], **changes)
    return msgspec.structs.replace(manifest, closed=tuple(closed))


WRONG: dict[str, tuple[Change, str]] = {
    "a lost attempt": (lambda m: member(m, 0, "g000000.1", None), "g000000.1: lost"),
    "a failure with a reward": (
        lambda m: member(m, 0, "g000000.2", Member(fate="trained", reward=0.0, num_tokens=3)),
        "g000000.2: trained, but it was not measured",
    ),
    "another reward": (
        lambda m: member(m, 0, "g000000.1", Member(fate="trained", reward=0.5, num_tokens=3)),
        "g000000.1: mislabelled: reward 1.0 went into the books as 0.5",
    ),
    "a measured attempt called a failure": (
        lambda m: member(m, 0, "g000000.1", Member(fate="unmeasured")),
        "counted as unmeasured, but it was measured",
    ),
    "tokens that were not there": (
        lambda m: member(m, 0, "g000000.1", Member(fate="trained", reward=1.0, num_tokens=4)),
        "4 tokens were trained, 3 are within the lag bound",
    ),
    "an attempt nobody began": (
        lambda m: member(m, 0, "g000000.9", Member(fate="trained", reward=1.0, num_tokens=3)),
        "g000000.9: trained by g000000, but it never began",
    ),
    "an attempt in two groups": (
        lambda m: member(m, 1, "g000000.1", Member(fate="dropped", reward=1.0)),
        "g000000.1: accounted for 2 times",
    ),
    "a step from the future": (lambda m: group(m, 0, step=0), "has the steps [0]"),
    "a trained group called dropped": (lambda m: group(m, 0, drop="stale"), "in a group that was stale"),
    "a skipped group": (lambda m: group(m, 1, group="g000009"), "group 3 was skipped"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_entry_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, finding = WRONG[name]
    right, wrong = RunStore.at("memory:///"), RunStore.at("memory:///")
    await small_run(right)
    for key in await right.list("journal"):
        await wrong.create(key, await right.get(key) or b"")
    commits = await Commits.read(wrong)
    for manifest in (await Commits.read(right)).manifests:
        changed = change(manifest) if manifest.number == 1 else manifest
        await commits.add(
            step=changed.step, checkpoint=changed.checkpoint, max_lag=1, life=0, last_segment=1, closed=changed.closed,
            ended=changed.ended,
        )  # fmt: skip
    found = await checked(wrong)
    assert any(finding in line for line in found.findings), found.findings


async def test_a_group_that_waits_to_begin_is_no_skipped_one_until_the_run_is_over() -> None:
    store = RunStore.at("memory:///")
    async with await Journal.open(store) as journal:
        books = Bookkeeper(journal, await Commits.read(store), max_lag=0, life=0)
        later = attempts_of(3, [0, 1], 0)
        for attempt in later:
            tell(books, attempt)
        books.trained(StepGroups(trained=(judged(group_of(3, *later)),), dropped=()), 1, oldest=0)
        await books.commit(step=1, checkpoint="step-000001")
        assert (await checked(store)).findings == []
        for left in leftovers([], [group_of(0), group_of(1), group_of(2)]):
            books.dropped(left)
        await books.commit(step=1, checkpoint="step-000001", ended="completed")
    found = await checked(store)
    assert (found.findings, found.num_groups) == ([], 4)


async def test_attempts_of_a_life_that_was_rolled_back_are_never_trained() -> None:
    store = RunStore.at("memory:///")
    async with await Journal.open(store) as journal:
        books = Bookkeeper(journal, await Commits.read(store), max_lag=1, life=0)
        stray = attempts_of(0, [0, 1], 1)  # sampled by a version 1 that was never committed
        for attempt in stray:
            tell(books, attempt)
        await journal.flush()
        point = await resume_point(read_journal(store), ())
        assert point.voided == {"resume_orphan": ["g000000.0", "g000000.1"]}
        journal.append(Resumed(life=1, step=0))  # and a resume that forgot to void them
        books.trained(StepGroups(trained=(), dropped=()), 1, oldest=-1)
        books.trained(StepGroups(trained=(judged(group_of(0, *stray)),), dropped=()), 2, oldest=0)
        await books.commit(step=2, checkpoint=None)
    found = await checked(store)
    assert any("of a life that was rolled back to 0" in line for line in found.findings), found.findings


async def test_what_is_voided_twice_or_never_began_is_found() -> None:
    store = RunStore.at("memory:///")
    await small_run(store)
    async with await Journal.open(store) as journal:
        journal.append(Voided(ids=("g000000.1", "g000077.0"), reason="resume_orphan"))
    found = await checked(store)
    assert "g000000.1: voided (resume_orphan) and trained" in found.findings
    assert any("g000077.0: voided (resume_orphan), but it never began" in line for line in found.findings)


@pytest.mark.parametrize("damage", ["exchanged", "missing", "not json"])
async def test_a_chain_of_commits_that_was_tampered_with_is_refused(damage: str) -> None:
    store = RunStore.at("memory:///")
    await small_run(store)
    data = await store.get(manifest_key(1)) or b""
    if damage == "missing":
        await store.delete([manifest_key(1)])
    else:
        await store.put(manifest_key(1), b"{" if damage == "not json" else data.replace(b"1.0", b"0.0", 1))
    with pytest.raises(StoreError, match="manifests/"):
        await Commits.read(store)
    assert (await checked(store)).findings


async def test_two_processes_cannot_commit_the_same_step() -> None:
    store = RunStore.at("memory:///")
    first, second = await Commits.read(store), await Commits.read(store)
    await first.add(step=1, checkpoint="a", max_lag=0, life=0, last_segment=0, closed=())
    with pytest.raises(StoreError, match="another process commits to this run"):
        await second.add(step=1, checkpoint="b", max_lag=0, life=1, last_segment=0, closed=())


def test_the_command_prints_the_accounting_and_its_exit_code_says_whether_it_is_clean(tmp_path: Path) -> None:
    run = RunDir.create(RunConfig(name="t"), tmp_path / "run")
    store = run.open_store(None)
    asyncio.run(small_run(store))
    done = CliRunner().invoke(app, ["run", "verify", str(run.path)])
    assert done.exit_code == 0, done.output
    assert "clean: every attempt is accounted for exactly once" in done.output
    assert "no_signal                   2" in done.output
    (run.path / manifest_key(2)).unlink()
    (run.path / "journal" / "00000001.seg").rename(run.path / "journal" / "00000002.seg")
    done = CliRunner().invoke(app, ["run", "verify", str(run.path), "--json"])
    assert done.exit_code == 1
    assert '"clean": false' in done.output
    run.close()
