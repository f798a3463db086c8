"""Commits: what a run's groups came to, together with the optimizer steps that used them.

A commit is one object, `manifests/00000012.json`, that can be created once. It names the checkpoint that it goes with
and closes groups: those its steps trained, and those that were dropped since the commit before. Only that makes them
count; whatever happened after the last commit has not happened. Each names the digest of the one before it, so that
none can be lost or exchanged unnoticed.
"""

import hashlib
import time
from collections.abc import Mapping
from typing import Literal

import msgspec

from burnish.errors import StoreError
from burnish.store import ExistsError, RunStore
from burnish.types import PolicyVersion

_PREFIX = "manifests"

Fate = Literal[
    "trained",  # tokens of it are in the optimizer step
    "baseline",  # measured, and compared with the trained ones, but none of its tokens is in the step
    "dropped",  # measured, and its group was dropped
    "unmeasured",  # something outside the attempt broke
    "cancelled",  # one more than the group needed
]


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one attempt of a closed group.

    Example: Member(fate="trained", reward=1.0, num_tokens=64)
    """

    fate: Fate
    reward: float | None = None  # as the batch had it; None for one that was not measured
    num_tokens: int = 0  # that the step trained
    uses: int = 0  # times it was drawn again from the replay buffer, up to this commit


class Closed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group that is over.

    Example: Closed(group="g000012", task_id="add/0", step=3, members={"g000012.0": Member(fate="trained", reward=1.0)})
    """

    group: str
    task_id: str
    members: dict[str, Member]
    step: PolicyVersion | None = None  # the version that its optimizer step made; None where no step closed it
    drop: str | None = None  # why it was dropped; None for a trained one


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A group that was trained before and drawn again.

    Example: Replay(group="g000007", step=5, num_tokens={"g000007.0": 64})
    """

    group: str
    step: PolicyVersion
    num_tokens: dict[str, int]  # by attempt


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One commit.

    Example: Manifest(number=1, parent="", step=10, checkpoint="step-000010", max_lag=1, life=0, last_segment=7)
    """

    number: int
    parent: str  # sha256 of the manifest before, 64 hex digits; "" for the first
    step: PolicyVersion  # everything up to it counts
    checkpoint: str | None  # folder name under checkpoints/
    max_lag: int
    life: int
    last_segment: int  # of the journal, when this was written
    closed: tuple[Closed, ...] = ()
    replayed: tuple[Replay, ...] = ()
    quarantine: dict[str, str] = {}  # task id -> the evidence
    ended: str | None = None  # why the run is over; None while it goes on
    written: str = ""


class Commits:
    """The chain of manifests, read at the start and written by one process.

    Example:
        commits = await Commits.read(store)
        await commits.add(step=10, checkpoint="step-000010", max_lag=1, life=0, last_segment=7, closed=())
    """

    def __init__(self, store: RunStore, manifests: tuple[Manifest, ...], digest: str) -> None:
        self._store = store
        self.manifests = manifests
        self._digest = digest

    @classmethod
    async def read(cls, store: RunStore) -> "Commits":
        """All commits so far. Raises StoreError when one is missing, damaged or not the successor of the one before."""
        manifests: list[Manifest] = []
        digest = ""
        async for key, data in store.read_all(await store.list(_PREFIX)):
            try:
                manifest = msgspec.json.decode(data, type=Manifest)
            except msgspec.DecodeError as error:
                raise StoreError(f"{key} is corrupt: {error}") from error
            if manifest.number != len(manifests) + 1 or manifest.parent != digest:
                raise StoreError(f"{key} does not follow the manifest before it", evidence=f"parent {manifest.parent}")
            manifests.append(manifest)
            digest = hashlib.sha256(data).hexdigest()
        return cls(store, tuple(manifests), digest)

    @property
    def last(self) -> Manifest | None:
        return self.manifests[-1] if self.manifests else None

    @property
    def step(self) -> PolicyVersion:
        """The committed version; 0 before the first commit."""
        return self.last.step if self.last else 0

    async def add(
        self,
        *,
        step: PolicyVersion,
        checkpoint: str | None,
        max_lag: int,
        life: int,
        last_segment: int,
        closed: tuple[Closed, ...],
        replayed: tuple[Replay, ...] = (),
        quarantine: Mapping[str, str] | None = None,
        ended: str | None = None,
    ) -> Manifest:
        """The moment that these steps begin to count. The checkpoint and the journal must be in place already.

        Raises StoreError when the store refuses, or when another process has committed in the meantime.
        """
        manifest = Manifest(
            number=len(self.manifests) + 1,
            parent=self._digest,
            step=step,
            checkpoint=checkpoint,
            max_lag=max_lag,
            life=life,
            last_segment=last_segment,
            closed=closed,
            replayed=replayed,
            quarantine=dict(quarantine or {}),
            ended=ended,
            written=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )
        data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        key = manifest_key(manifest.number)
        try:
            await self._store.create(key, data)
        except ExistsError:
            if await self._store.get(key) != data:  # not the answer that got lost, but somebody else's
                raise StoreError(f"{key} is there already: another process commits to this run") from None
        await self._store.settle([key])
        self.manifests = (*self.manifests, manifest)
        self._digest = hashlib.sha256(data).hexdigest()
        return manifest


def manifest_key(number: int) -> str:
    """Example: manifest_key(12) == "manifests/00000012.json"."""
    return f"{_PREFIX}/{number:08d}.json"
