"""What a run writes down: attempts as they happen, and at each commit what became of their groups."""

from collections.abc import Iterable, Mapping

from burnish.flow.buffer import Judged, StepGroups, num_fresh_tokens
from burnish.flow.group import Ticket
from burnish.flow.journal import Journal
from burnish.flow.manifest import Closed, Commits, Fate, Member
from burnish.flow.records import Begun, Stepped, ended
from burnish.types import Attempt, Group, Measured, PolicyVersion, Step


class Bookkeeper:
    """Holds the journal and the closings that wait for the next commit."""

    def __init__(
        self,
        journal: Journal,
        commits: Commits,
        *,
        max_lag: int,
        life: int,
        quarantine: Mapping[str, str] | None = None,
    ) -> None:
        """`quarantine`: who is in it, as of each commit."""
        self._journal, self._commits = journal, commits
        self._quarantine = quarantine if quarantine is not None else {}
        self._max_lag, self._life = max_lag, life
        self._closed: list[Closed] = []

    def begin(self, ticket: Ticket) -> None:
        self._journal.append(
            Begun(
                id=ticket.id,
                group=ticket.group_id,
                member=ticket.member,
                task_id=ticket.task.id,
                family=ticket.task.family,
                digest=ticket.task.digest,
                seed=ticket.seed,
            )
        )

    def step(self, id: str, index: int, step: Step) -> None:
        self._journal.append(Stepped(id=id, index=index, step=step))

    def end(self, attempt: Attempt) -> None:
        self._journal.append(ended(attempt))

    def trained(self, groups: StepGroups, step: PolicyVersion, *, oldest: PolicyVersion) -> None:
        """The step that made version `step` closes these groups; it trained tokens from version `oldest` on."""
        self._closed += [_closed(judged, step=step, oldest=oldest) for judged in groups.trained]
        self._closed += [_closed(judged, step=step) for judged in groups.dropped]

    def dropped(self, judged: Judged) -> None:
        """A group that no step closes."""
        self._closed.append(_closed(judged))

    async def commit(self, *, step: PolicyVersion, checkpoint: str | None, ended: str | None = None) -> None:
        """Makes everything so far count. The journal first, so that what a commit speaks of is there."""
        await self._journal.flush()
        closed = tuple(self._closed)
        await self._commits.add(
            step=step,
            checkpoint=checkpoint,
            max_lag=self._max_lag,
            life=self._life,
            last_segment=self._journal.last_segment,
            closed=closed,
            quarantine=self._quarantine,
            ended=ended,
        )
        self._closed = self._closed[len(closed) :]


def _closed(judged: Judged, *, step: PolicyVersion | None = None, oldest: PolicyVersion = 0) -> Closed:
    return Closed(
        group=judged.group.id,
        task_id=judged.group.task_id,
        step=step,
        drop=judged.drop,
        members={a.trajectory.id: _member(a, judged.drop is None, oldest) for a in judged.group.attempts},
    )


def _member(attempt: Attempt, is_trained: bool, oldest: PolicyVersion) -> Member:
    outcome = attempt.outcome
    if not isinstance(outcome, Measured):
        return Member(fate="cancelled" if attempt.trajectory.stop_reason == "cancelled" else "unmeasured")
    num_tokens = num_fresh_tokens(attempt.trajectory, oldest) if is_trained else 0
    fate: Fate = "trained" if num_tokens else "baseline" if is_trained else "dropped"
    return Member(fate=fate, reward=outcome.reward, num_tokens=num_tokens)


def leftovers(ready: Iterable[Judged], open_groups: Iterable[Group]) -> list[Judged]:
    """The groups that a run which is over has no step for any more, those included that only waited to begin."""
    groups = [*(judged.group for judged in ready), *open_groups]
    return [Judged(group=group, drop="run_ended") for group in groups]
