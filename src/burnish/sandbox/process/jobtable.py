"""Jobs of the host, as their owner sees them: asked for, waited for, and ended when nobody waits any longer."""

import asyncio
import itertools
from collections.abc import Callable, Sequence

from burnish.errors import SandboxError, UserError
from burnish.sandbox.process.wire import Message


class JobTable:
    """Those that somebody waits for."""

    def __init__(self, post: Callable[[Message, Sequence[int]], None]) -> None:
        self._post = post
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    async def run(self, request: Message, fds: Sequence[int], *, what: str, deadline_s: float) -> str:
        """One job, to its end; what it found. Takes over `fds`. It is killed when late or unwanted.

        Raises SandboxError when it fails, UserError when it refuses what it was given.
        """
        job = str(next(self._numbers))
        done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[job] = done
        self._post({"op": "work", "job": job, **request}, fds)
        try:
            async with asyncio.timeout(deadline_s):
                answer = await done
        except BaseException as error:
            self._post({"op": "cancel", "job": job}, ())
            if isinstance(error, TimeoutError):
                raise SandboxError(f"{what} took more than {deadline_s:g} s") from None
            raise
        finally:
            del self._waiting[job]
        if answer["is_refused"]:
            raise UserError(answer["cause"], where=what)
        if answer["cause"]:
            raise SandboxError(f"{what}: {answer['cause']}")
        return str(answer["result"])

    def finish(self, message: Message) -> None:
        """The host says that one has ended."""
        done = self._waiting.get(message["done"])
        if done is not None and not done.done():
            done.set_result(message)

    def give_up(self, cause: str) -> None:
        """The host is gone, and all jobs with it."""
        for done in self._waiting.values():
            if not done.done():
                done.set_result({"cause": cause, "is_refused": False, "result": ""})
