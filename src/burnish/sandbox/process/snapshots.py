"""Layers on the owner's side: who needs which, and the snapshots that people hold."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from burnish.errors import SandboxError
from burnish.sandbox.process import overlay


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """What lies below all layers. `root` empty: this machine's programs; else an image's root, below the store, and the
    image's digest.

    Example: Base(root="images/6f1c.../rootfs", digest="sha256:6f1c...", envs={"PATH": "/usr/local/bin:/usr/bin:/bin"})
    """

    root: str = ""
    digest: str = ""
    envs: Mapping[str, str] = field(default_factory=dict)


_LONGEST_NAME = "9999999"  # of a layer to come


def require_mountable(stack: tuple[str, ...], num_more: int, base: Base, *, rootless: bool, what: str) -> None:
    """Raises SandboxError when no sandbox could be mounted over a stack with so many layers more."""
    try:
        overlay.options((*stack, *[_LONGEST_NAME] * num_more), base.root, rootless=rootless)
    except overlay.TooManyLayersError as error:
        raise SandboxError(f"{what}: {error}") from None


class LayerTable:
    """Counts the users of every layer: living sandboxes and snapshots that are held. The last one drops it."""

    def __init__(self, drop: Callable[[str], None]) -> None:
        self._drop = drop
        self._num_users: Counter[str] = Counter()
        self._used_bytes: dict[str, int] = {}

    def hold(self, stack: Sequence[str]) -> None:
        self._num_users.update(stack)

    def release(self, stack: Sequence[str]) -> None:
        for layer in stack:
            if layer not in self._num_users:
                continue  # lost with its host
            self._num_users[layer] -= 1
            if self._num_users[layer] == 0:
                del self._num_users[layer]
                self._used_bytes.pop(layer, None)
                self._drop(layer)

    def forget(self) -> None:
        """Their host is gone, and all layers with it. Snapshots that are still held are worth nothing."""
        self._num_users.clear()
        self._used_bytes.clear()

    def knows(self, stack: Sequence[str]) -> bool:
        """Whether all layers of a stack are there."""
        return all(layer in self._num_users for layer in stack)

    def weigh(self, layer: str, used_bytes: int) -> None:
        """Notes what a new layer's files take."""
        self._used_bytes[layer] = used_bytes

    def unweigh(self, layer: str) -> None:
        """Of one that nobody will use."""
        self._used_bytes.pop(layer, None)

    def used_bytes(self, stack: Sequence[str]) -> int:
        """What the files of all layers of a stack take, those included that upper ones hide."""
        return sum(self._used_bytes.get(layer, 0) for layer in stack)


class ProcessSnapshot:
    """The files of a sandbox at one moment; see `burnish.sandbox.base.Snapshot`."""

    def __init__(self, stack: tuple[str, ...], family: str, base: Base, table: LayerTable, *, was_live: bool) -> None:
        self.stack, self.family, self.base = stack, family, base
        self._table = table
        self._was_live = was_live
        self._held = True
        table.hold(stack)

    @property
    def id(self) -> str:
        return self.stack[-1]

    @property
    def was_live(self) -> bool:
        return self._was_live

    @property
    def is_held(self) -> bool:
        return self._held

    def is_of(self, table: LayerTable) -> bool:
        """Whether it is of this backend: others give the same names to other layers."""
        return self._table is table

    @property
    def is_lost(self) -> bool:
        """The host that kept its files has died."""
        return not self._table.knows(self.stack)

    async def release(self) -> None:
        """See `burnish.sandbox.base.Snapshot.release`."""
        if self._held:
            self._held = False
            self._table.release(self.stack)

    async def __aenter__(self) -> "ProcessSnapshot":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()
