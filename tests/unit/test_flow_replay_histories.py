"""Random histories of the replay index: whatever happened before, what is drawn is within the lag bound (I3)."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from burnish.flow import replay
from burnish.flow.replay import Eligible, ReplayEntry, ReplayIndex
from burnish.flow.replay_samplers import AttemptSampler
from tests.unit._replay import entry, everything, samplers


@dataclass
class ModelGroup:
    entries: dict[int, ReplayEntry] = field(default_factory=dict)
    whole: bool = True
    uses: int = 0


class ReplayMachine(RuleBasedStateMachine):
    """The index and samplers that live as long as it does, against a dictionary of groups that is read in full."""

    @initialize(allow_partial=st.booleans())
    def start(self, allow_partial: bool) -> None:
        self.min_holes, replay.MIN_HOLES = replay.MIN_HOLES, 4  # rows are renumbered all the time
        self.allow_partial = allow_partial
        self.index = ReplayIndex(allow_partial=allow_partial)
        self.samplers = samplers()
        self.groups: dict[int, ModelGroup] = {}
        self.num_groups, self.version, self.seed = 0, 3, 0

    def teardown(self) -> None:
        if hasattr(self, "min_holes"):
            replay.MIN_HOLES = self.min_holes

    def bound(self, entry: ReplayEntry) -> int:
        return entry.newest_version if self.allow_partial else entry.oldest_version

    def forget(self, group: int, gone: list[int]) -> None:
        for member in gone:
            del self.groups[group].entries[member]
            self.groups[group].whole = False
        if not self.groups[group].entries:
            del self.groups[group]

    def add(self, group: int, member: int, age: int, num_versions: int, advantage: float) -> None:
        newest = max(0, self.version - age)
        added = entry(group, member, newest_version=newest, oldest_version=max(0, newest - num_versions),
                      advantage=advantage, difficulty=(group % 5) / 4)  # fmt: skip
        self.index.add(added)
        self.groups.setdefault(group, ModelGroup()).entries[member] = added

    @rule(ages=st.lists(st.integers(0, 6), min_size=1, max_size=4), num_versions=st.integers(0, 3),
          advantage=st.sampled_from([0.0, 0.5, -2.0]))  # fmt: skip
    def add_group(self, ages: list[int], num_versions: int, advantage: float) -> None:
        for member, age in enumerate(ages):
            self.add(self.num_groups, member, age, num_versions, advantage)
        self.num_groups += 1

    @precondition(lambda self: self.num_groups - 1 in self.groups)
    @rule(age=st.integers(0, 6))
    def add_late_member(self, age: int) -> None:
        self.add(self.num_groups - 1, 10 + self.seed, age, 1, 1.0)
        self.seed += 1

    @precondition(lambda self: self.num_groups)
    @rule(data=st.data())
    def remove_group(self, data: st.DataObject) -> None:
        group = data.draw(st.integers(0, self.num_groups - 1))
        removed = self.groups.pop(group, ModelGroup())
        assert self.index.remove_group(group) == len(removed.entries)

    @rule(lag=st.integers(0, 8))
    def expire(self, lag: int) -> None:
        oldest, expected = self.version - lag, Counter({"stale": 0, "partly_stale": 0})
        for group in list(self.groups):
            gone = [m for m, e in self.groups[group].entries.items() if self.bound(e) < oldest]
            for member in gone:
                newest = self.groups[group].entries[member].newest_version
                expected["stale" if newest < oldest else "partly_stale"] += 1
            self.forget(group, gone)
        assert self.index.expire(oldest) == expected

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), times=st.integers(0, 2))
    def use(self, data: st.DataObject, times: int) -> None:
        group = data.draw(st.sampled_from(sorted(self.groups)))
        self.index.mark_used(group, times=times)
        self.groups[group].uses += times

    @rule()
    def step(self) -> None:
        self.version += 1

    @rule(max_lag=st.sampled_from([0, 3, 100]), max_uses=st.sampled_from([None, 1]), n=st.integers(0, 12))
    def sample(self, max_lag: int, max_uses: int | None, n: int) -> None:
        """Few different bounds, so that samplers often go on with what they have."""
        eligible = self.index.eligible(self.version, max_lag, max_uses=max_uses)
        for name in self.samplers:
            self.check_sampler(name, eligible, n)

    def check_sampler(self, name: str, eligible: Eligible, n: int) -> None:
        max_uses = eligible.max_uses
        open_groups = {g: m for g, m in self.groups.items() if max_uses is None or m.uses < max_uses}
        within = {g: [e for e in m.entries.values() if self.bound(e) >= eligible.min_version]
                  for g, m in open_groups.items()}  # fmt: skip
        whole = {g: found for g, found in within.items()
                 if open_groups[g].whole and len(found) == len(open_groups[g].entries)}  # fmt: skip
        sampler = self.samplers[name]
        rows = sampler.sample(eligible, n, np.random.default_rng(self.seed))
        fresh = samplers()[name].sample(eligible, n, np.random.default_rng(self.seed))
        assert rows.tolist() == fresh.tolist(), "what a sampler keeps is what another one makes anew"
        drawn = [self.index.entry(row) for row in rows.tolist()]
        if isinstance(sampler, AttemptSampler):
            allowed = {e.attempt_id: e.advantage != 0.0 for found in within.values() for e in found}
            names = [e.attempt_id for e in drawn]
        else:
            allowed = {str(g): any(e.advantage for e in found) for g, found in whole.items()}
            heads = [e.group for e in drawn if e.member == min(self.groups[e.group].entries)]
            names = list(map(str, heads))
            assert drawn == [e for group in heads for e in whole[group]], "whole groups, one after the other"
        num_drawable = len(allowed)
        if "priority" in name:
            num_drawable = sum(allowed.values()) or num_drawable
        assert sampler.num_drawable(eligible) == num_drawable
        assert set(names) <= set(allowed)
        assert len(names) == (n if allowed else 0)
        if n <= num_drawable:
            assert len(set(names)) == n

    @invariant()
    def the_index_is_the_model(self) -> None:
        if not hasattr(self, "groups"):
            return
        rows = self.index.eligible_rows(everything(self.index, version=self.version))
        held = [self.index.entry(row) for row in rows.tolist()]
        assert held == [e for _, m in sorted(self.groups.items()) for e in m.entries.values()]
        assert (self.index.num_attempts, self.index.num_groups) == (len(held), len(self.groups))
        assert all(self.index.uses(group) == model.uses for group, model in self.groups.items())


TestHistories = ReplayMachine.TestCase
TestHistories.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
