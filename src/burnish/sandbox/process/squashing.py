"""Keeps stacks short, on the owner's side: the lowest layers of a long one are merged into one, in the background.

What is noted then is that these layers, at the bottom of a stack, are the same as that one. Lives that begin later are
mounted over the shorter stack; lives and snapshots that are there keep what they have.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable

from burnish.errors import SandboxError
from burnish.observe.emit import emit
from burnish.sandbox.process.jobtable import JobTable
from burnish.sandbox.process.snapshots import LayerTable

LONGEST = 48  # a stack with more layers is squashed
_NUM_KEPT = 8  # the newest, which are the likeliest to be returned to or dropped
_SQUASH_S = 120.0

Stack = tuple[str, ...]


class Squashes:
    """Those that run, and what came of those that are done."""

    def __init__(
        self, jobs: JobTable, table: LayerTable, name: Callable[[str], str], drop: Callable[[str], None]
    ) -> None:
        """
        Args:
            name: registers a layer to come, of a family.
            drop: forgets one that nobody holds.
        """
        self._jobs, self._table, self._name, self._drop = jobs, table, name, drop
        self._running: dict[str, tuple[Stack, asyncio.Task[None]]] = {}  # by family
        self._merged: dict[str, dict[Stack, str]] = defaultdict(dict)  # by the topmost of the layers that it stands for
        self._parts: dict[str, set[Stack]] = defaultdict(set)  # layer -> what it is part of, of all in `_merged`

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    def shorten(self, stack: Stack) -> Stack:
        """The same files over fewer layers, as far as some were merged."""
        length = len(stack)
        while length > 1:
            merged = self._merged.get(stack[length - 1], {}).get(stack[:length])
            if merged is None:
                length -= 1
            else:
                stack = (merged, *stack[length:])
                length = len(stack)
        return stack

    def begin(self, stack: Stack, family: str) -> None:
        """Begins to squash what is long, unless the family has a squash that runs. One that failed is not repeated
        with every snapshot."""
        if len(stack) > LONGEST and (len(stack) - LONGEST) % _NUM_KEPT == 1 and family not in self._running:
            bottom = stack[:-_NUM_KEPT]
            task = asyncio.create_task(self._squash(bottom, family))
            self._running[family] = bottom, task
            task.add_done_callback(lambda task: self._end(family, task))

    async def _squash(self, bottom: Stack, family: str) -> None:
        if not self._table.knows(bottom):  # it was dropped, or its host died, before this began
            return
        layer, cause = self._name(family), "nobody needs it any longer"
        try:
            request = {"kind": "squash", "layer": layer, "family": family, "layers": bottom}
            used_bytes = await self._jobs.run(request, (), what="squashing the files", deadline_s=_SQUASH_S)
            if self._table.knows(bottom):
                self._note(bottom, layer, int(used_bytes))
                cause = ""
        except SandboxError as error:  # the stack stays as it is; the next snapshot tries again
            cause = error.cause
        finally:
            if cause:
                self._drop(layer)
            emit("sandbox.squash", num_layers=len(bottom), cause=cause)

    def _note(self, bottom: Stack, layer: str, used_bytes: int) -> None:
        self._table.weigh(layer, used_bytes)
        self._table.hold((layer,))
        self._merged[bottom[-1]][bottom] = layer
        for part in bottom:
            self._parts[part].add(bottom)

    def _end(self, family: str, task: "asyncio.Task[None]") -> None:
        if self._running.get(family, ((), None))[1] is task:
            del self._running[family]

    def dropped(self, layer: str) -> None:
        """Nobody uses it any longer: what is part of it stands for nothing that anybody could ask for."""
        for bottom, task in self._running.values():
            if layer in bottom:
                task.cancel()
        for bottom in self._parts.pop(layer, ()):
            for part in bottom:
                if part != layer:
                    self._parts[part].discard(bottom)
                    if not self._parts[part]:
                        del self._parts[part]
            merged = self._merged[bottom[-1]].pop(bottom)
            if not self._merged[bottom[-1]]:
                del self._merged[bottom[-1]]
            self._table.release((merged,))

    def forget(self) -> None:
        """Their host is gone, and all layers with it. What runs hears of it by its job."""
        self._merged.clear()
        self._parts.clear()

    async def close(self) -> None:
        """Ends what runs."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
