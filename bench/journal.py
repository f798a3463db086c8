"""What the journal takes and gives back: ingest against the disk's own write rate, and reading it all again.

    python bench/journal.py [--quick] [--folder FOLDER]

Ingest appends finished attempts as a run does, as fast as the journal takes them, until all of it is on the disk. The
disk's rate is a plain file written in blocks of a segment's size, each of them flushed, in the same folder, in turns.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from _bench import Bench, median, spread
from burnish.flow.journal import Journal, read_journal
from burnish.flow.ledger import Books
from burnish.flow.records import Begun, Record, Stepped, ended
from burnish.store import RunStore
from burnish.types import Action, Attempt, Measured, Step, Trajectory

INGEST_BAR, REBUILD_BAR_S = 0.5, 10.0
NUM_ATTEMPTS, NUM_TURNS = 100_000, 2
PROMPT_TOKENS, SAMPLED_TOKENS = 256, 64  # a turn of work in a shell: a kilobyte seen, a command and its reason sampled
OBSERVATION_BYTES, ACTION_BYTES = 1024, 200
BLOCK_BYTES = 4 << 20
GROUP_SIZE = 8
VOCABULARY = range(50_000)
WORDS = [f"{random.Random(n).randrange(36**4):04x} " for n in range(4000)]


def records(index: int, chance: random.Random) -> list[Record]:
    """All of one attempt. Tokens, logprobs and texts are as varied as real ones, which decides how they compress."""
    group, member = divmod(index, GROUP_SIZE)
    id = f"g{group:06d}.{member}"
    begun = Begun(
        id=id, group=f"g{group:06d}", member=member, task_id="t/0", family="t", digest="d" * 64, seed=index
    )  # fmt: skip
    steps = tuple(turn(index // 1000, chance) for _ in range(NUM_TURNS))
    trajectory = Trajectory(
        id=id, group_id=begun.group, task_id="t/0", family="t", steps=steps, stop_reason="max_turns"
    )  # fmt: skip
    end = ended(Attempt(trajectory=trajectory, outcome=Measured(scores={"hidden_passed": 1.0}, reward=1.0)))
    return [begun, *(Stepped(id=id, index=number, step=step) for number, step in enumerate(steps)), end]


def turn(version: int, chance: random.Random) -> Step:
    return Step(
        prompt_ids=tuple(chance.choices(VOCABULARY, k=PROMPT_TOKENS)),
        output_ids=tuple(chance.choices(VOCABULARY, k=SAMPLED_TOKENS)),
        logprobs=tuple(-chance.expovariate(2.0) for _ in range(SAMPLED_TOKENS)),
        versions=(version,) * SAMPLED_TOKENS,
        finish="stop",
        action=Action(kind="code", text=text(ACTION_BYTES, chance)),
        observation=text(OBSERVATION_BYTES, chance),
    )


def text(num_bytes: int, chance: random.Random) -> str:
    return "".join(chance.choices(WORDS, k=num_bytes // 5))[:num_bytes]


async def ingest(folder: Path, attempts: list[list[Record]]) -> Mapping[str, float]:
    store = RunStore.at(str(folder))
    began = time.perf_counter()
    async with await Journal.open(store) as journal:
        writing = asyncio.create_task(journal.run())
        for number, attempt in enumerate(attempts):
            for record in attempt:
                journal.append(record)
            if number % 64 == 0:
                await journal.room()
                await asyncio.sleep(0)
        await journal.flush()
        writing.cancel()
    wall_s = time.perf_counter() - began
    return {"raw": journal.num_bytes / wall_s / 1e6, "stored": journal.num_stored_bytes / wall_s / 1e6,
            "ratio": journal.num_bytes / journal.num_stored_bytes, "bytes": float(journal.num_bytes)}  # fmt: skip


def write_plainly(folder: Path, num_bytes: int) -> float:
    """Megabytes a second of a file in flushed blocks."""
    block = random.Random(0).randbytes(BLOCK_BYTES)
    began = time.perf_counter()
    with (folder / "plain").open("wb", buffering=0) as file:
        for _ in range(max(1, num_bytes // BLOCK_BYTES)):
            file.write(block)
            os.fdatasync(file.fileno())
    return max(1, num_bytes // BLOCK_BYTES) * BLOCK_BYTES / (time.perf_counter() - began) / 1e6


async def rebuild_s(folder: Path, *, whole: bool) -> float:
    """An index over all attempts: what each sampled, when, and how it ended; with `whole`, every token of all too."""
    began = time.perf_counter()
    books = Books(keep_steps=whole, on_problem=sys.exit)
    await books.read(read_journal(RunStore.at(str(folder))))
    if whole:
        assert all(account.attempt for account in books.accounts.values())
    return time.perf_counter() - began


async def measure(bench: Bench, *, folder: Path, num_attempts: int, num_rounds: int) -> None:
    chance = random.Random(1)
    attempts = [records(index, chance) for index in range(num_attempts)]
    found: dict[str, list[float]] = {"raw": [], "stored": [], "plain": [], "ratio": [], "rebuild": [], "whole": []}
    for _ in range(num_rounds):
        with tempfile.TemporaryDirectory(prefix="burnish-journal-", dir=folder) as name:
            took = await ingest(Path(name), attempts)
            for figure in ("raw", "stored", "ratio"):
                found[figure].append(took[figure])
            found["plain"].append(write_plainly(Path(name), int(took["bytes"])))
            found["rebuild"].append(await rebuild_s(Path(name), whole=False))
            found["whole"].append(await rebuild_s(Path(name), whole=True))
    bench.report("ingest_raw", median(found["raw"]), "MB/s")
    bench.report("ingest_stored", median(found["stored"]), "MB/s")
    bench.report("compression", median(found["ratio"]), "x")
    bench.report("plain_write", median(found["plain"]), "MB/s")
    bench.report("plain_write_spread", spread(found["plain"]), "of median")
    bench.report("ingest_over_plain_write", median(found["raw"]) / median(found["plain"]), "x", bar=INGEST_BAR)
    bench.report("attempts", num_attempts, "attempts")
    for figure, name, bar in (("rebuild", "index_of_100000_attempts", REBUILD_BAR_S), ("whole", "all_of_100000", None)):
        per_100k = median(found[figure]) * NUM_ATTEMPTS / num_attempts
        bench.report(name, per_100k, "s", bar=bar, want="max")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    bench = Bench("journal")
    num = NUM_ATTEMPTS // 10 if options.quick else NUM_ATTEMPTS
    asyncio.run(measure(bench, folder=options.folder, num_attempts=num, num_rounds=3))
    sys.exit(bench.exit_code)
