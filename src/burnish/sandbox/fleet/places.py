"""A bounded number of places, given out in the order in which they were asked for."""

import asyncio
import contextlib
from collections import deque

from burnish.errors import SandboxError, UserError


class Places:
    """`total` None is no bound. Who asks for many waits for all of them, and those behind wait too: nobody starves."""

    def __init__(self, total: int | None) -> None:
        if total is not None and total < 1:
            raise UserError(f"{total} sandboxes at once", where="max_live", fix="allow at least one")
        self._total, self._taken = total, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def num_taken(self) -> int:
        return self._taken

    async def take(self, num: int, *, wait_s: float) -> None:
        """Raises SandboxError when they are not free within `wait_s`, UserError when there never are so many.

        Cancelled, it has taken nothing.
        """
        if self._total is not None and num > self._total:
            raise UserError(f"{num} sandboxes, of at most {self._total} at once", where="max_live", fix="ask for fewer")
        if not self._waiting and self._fits(num):
            self._taken += num
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((num, turn))
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # it came at the same moment
                self.give_back(num)
            else:
                with contextlib.suppress(ValueError):  # `_serve` met it already
                    self._waiting.remove((num, turn))
                self._serve()  # who waited behind may fit
            if isinstance(error, TimeoutError):
                raise SandboxError(f"create: no place among {self._total} sandboxes within {wait_s:g} s") from None
            raise

    def give_back(self, num: int) -> None:
        """Frees places that were taken."""
        self._taken -= num
        assert self._taken >= 0
        self._serve()

    def _fits(self, num: int) -> bool:
        return self._total is None or self._taken + num <= self._total

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            num, turn = self._waiting.popleft()
            if turn.cancelled():
                continue
            self._taken += num
            turn.set_result(None)
