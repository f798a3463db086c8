"""Experience replay from a large index: samples a second of every sampler, bytes an attempt, the rate of a rebuild.

    python bench/replay.py [--quick]

Every sampler draws 64 at a time under a lag bound that three quarters of the index are within: from an index at rest,
then while 1,000 attempts a second are added in groups of 8, and then while also, every second, the learner's version
goes up and a group's use is counted, after which a sampler prepares the whole index anew.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from _bench import Bench, alternate, median, spread
from burnish.flow.replay import ReplayEntry, ReplayIndex
from burnish.flow.replay_samplers import GroupAware, Priority, Recency, Sampler, Uniform

SAMPLES_BAR = 100_000.0  # a second
NUM_ATTEMPTS, GROUP_SIZE = 1_000_000, 8
NUM_DRAWN = 64
NUM_VERSIONS, MAX_LAG = 64, 48
ADDED_PER_S, STEP_EVERY_S = 1000, 1.0


def entries(first_group: int, num_attempts: int, *, version: int | None = None) -> Iterator[ReplayEntry]:
    """Attempts of whole groups; without `version`, of all versions, the oldest first."""
    chance = np.random.default_rng(first_group)
    for number in range(num_attempts):
        group, member = divmod(number, GROUP_SIZE)
        if member == 0:
            passed = chance.random(GROUP_SIZE) < chance.random()
            rate = float(passed.mean())
            newest = number * NUM_VERSIONS // num_attempts if version is None else version
        yield ReplayEntry(
            attempt_id=f"g{first_group + group:06d}.{member}",
            group=first_group + group,
            member=member,
            family="t",
            num_tokens=512,
            num_steps=4,
            oldest_version=max(0, newest - 1),
            newest_version=newest,
            reward=float(passed[member]),
            advantage=float(passed[member]) - rate,
            difficulty=rate,
            location=number * 4096,
        )


class Feed:
    """A run beside the sampling: adds what is due by the clock."""

    def __init__(self, index: ReplayIndex, *, adds: bool, steps: bool) -> None:
        self._index, self._adds, self._steps = index, adds, steps
        self._began = time.perf_counter()
        self._num_added = 0
        self._next_group = 1 + int(index.values("group", np.array([index.rows.num - 1]))[0])
        self.version = NUM_VERSIONS

    def advance(self) -> None:
        passed_s = time.perf_counter() - self._began
        while self._adds and self._num_added + GROUP_SIZE <= passed_s * ADDED_PER_S:
            for entry in entries(self._next_group, GROUP_SIZE, version=self.version):
                self._index.add(entry)
            self._next_group += 1
            self._num_added += GROUP_SIZE
        if self._steps and NUM_VERSIONS + int(passed_s / STEP_EVERY_S) > self.version:
            self.version += 1
            self._index.mark_used(self._next_group - 1)


def samples_per_s(index: ReplayIndex, sampler: Sampler, feed: Feed, *, seconds: float) -> float:
    rng = np.random.default_rng(0)
    sampler.sample(index.eligible(feed.version, MAX_LAG), NUM_DRAWN, rng)  # what it prepares is timed by `prepare`
    began, num_samples = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(8):
            num_samples += len(sampler.sample(index.eligible(feed.version, MAX_LAG), NUM_DRAWN, rng))
        feed.advance()
    return num_samples / (time.perf_counter() - began)


def timed_s(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(bench: Bench, *, seconds: float, num_rounds: int) -> None:
    index = ReplayIndex()
    began = time.perf_counter()
    for entry in entries(0, NUM_ATTEMPTS):
        index.add(entry)
    bench.report("rebuild", NUM_ATTEMPTS / (time.perf_counter() - began), "attempts/s")
    bench.report("index_bytes", index.nbytes_per_attempt, "B/attempt")
    samplers: dict[str, Sampler] = {
        "uniform": Uniform(),
        "recency": Recency(half_life=8.0),
        "priority": Priority(alpha=0.6),
        "group_aware": GroupAware(Priority(alpha=0.6)),
    }
    for name, sampler in samplers.items():
        eligible = index.eligible(NUM_VERSIONS, MAX_LAG)
        bench.report(f"{name}_prepare", timed_s(partial(sampler.num_drawable, eligible)) * 1e3, "ms")
        bench.report(f"{name}_bytes", sampler.nbytes / index.num_attempts, "B/attempt")
    for kind, adds, steps in (("at_rest", False, False), ("adding", True, False), ("stepping", True, True)):

        def run(sampler: Sampler, adds: bool = adds, steps: bool = steps) -> float:
            return samples_per_s(index, sampler, Feed(index, adds=adds, steps=steps), seconds=seconds)

        found = alternate({name: partial(run, sampler) for name, sampler in samplers.items()}, num_rounds=num_rounds)
        for name, values in found.items():
            bench.report(f"{name}_{kind}", median(values), "samples/s", bar=SAMPLES_BAR)
        bench.report(f"{kind}_spread", max(map(spread, found.values())), "of median")
    bench.report("expire", timed_s(lambda: index.expire(NUM_VERSIONS - MAX_LAG)) * 1e3, "ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench("replay")
    measure(bench, seconds=1.2 if options.quick else 3.0, num_rounds=1 if options.quick else 3)
    sys.exit(bench.exit_code)
