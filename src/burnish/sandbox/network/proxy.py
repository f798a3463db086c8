"""The proxy of one box: accepts on a listening socket that stands inside the box, and lets through what is allowed.

    proxy = Proxy(NetworkPolicy.parse(["pypi.org:443"]), on_record=audit.write)
    proxy.serve(listener)       # a listening socket; HTTP and SOCKS5 on the same one, told apart by the first byte
    proxy.policy = PhasePolicies(...).of("act")   # replaces all of it; what it denies is cut
    await proxy.close()

It runs in its owner's event loop. What it does not stop: inside an allowed TLS connection anything may be said, the
name of another host of the same provider included; a tunnel to a name on a port other than 443 that does not begin with
TLS is not looked into; and the names asked for under a `*.` rule are a message to whoever answers for them.
"""

import asyncio
import errno
import itertools
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from burnish.errors import SandboxError, boundary, first_cause
from burnish.sandbox.network.policy import NetworkPolicy
from burnish.sandbox.network.records import NetworkRecord
from burnish.sandbox.network.session import ProxyLimits, Resolve, Session

_NUM_LOOKUPS = 4  # at once; a resolver that hangs takes these threads and none of the owner's
_ACCEPT_PAUSE_S = 0.1  # when the owner is out of descriptors or memory for a moment
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Proxy:
    """Serves one listening socket under a policy that can be replaced at any time.

    `on_record` hears of every verdict and of the end of every allowed connection, in order, and must not block. When it
    raises, the proxy ends with everything that goes through it: nothing passes unrecorded.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        *,
        on_record: Callable[[NetworkRecord], None],
        resolve: Resolve | None = None,
        limits: ProxyLimits = ProxyLimits(),
    ) -> None:
        self._on_record = on_record
        self.limits = limits
        self._policy = policy
        self._resolve = resolve
        self._sessions: dict[asyncio.Task[None], Session] = {}
        self._lookups = ThreadPoolExecutor(_NUM_LOOKUPS, thread_name_prefix="burnish-resolve")  # starts none before use
        self._task: asyncio.Task[None] | None = None

    @property
    def policy(self) -> NetworkPolicy:
        """The policy that new connections meet. Setting it replaces the whole and cuts what the new one denies."""
        return self._policy

    @policy.setter
    def policy(self, policy: NetworkPolicy) -> None:
        self._policy = policy
        for task, session in self._sessions.items():
            if session.denied_by(policy):
                session.cut(task)

    @property
    def num_connections(self) -> int:
        """How many are open now."""
        return len(self._sessions)

    def serve(self, listener: socket.socket) -> "asyncio.Task[None]":
        """Starts to accept and takes the socket over. The task ends by `close`, or earlier by an error of ours."""
        assert self._task is None, "a proxy serves one socket"
        listener.setblocking(False)
        self._task = asyncio.create_task(self._run(listener), name="burnish-proxy")
        # Also when it is cancelled before it ran at all.
        self._task.add_done_callback(lambda _: listener.close())
        return self._task

    async def close(self) -> None:
        """Cuts every connection and closes the listening socket. Idempotent.

        Raises SandboxError when the proxy had ended before by an error of its own or of `on_record`.
        """
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        self._lookups.shutdown(wait=False, cancel_futures=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            with boundary(SandboxError, during="network proxy"):
                raise first_cause(error) if isinstance(error, BaseExceptionGroup) else error

    def tell(self, record: NetworkRecord) -> None:
        """Hands a record to the owner. Raises SandboxError, which no session takes for an error of its sockets."""
        with boundary(SandboxError, during="network record"):
            self._on_record(record)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name, from the resolver that was given or the host's own."""
        if self._resolve is not None:
            return await self._resolve(host, port)
        return await asyncio.get_running_loop().run_in_executor(self._lookups, _look_up, host, port)

    async def _run(self, listener: socket.socket) -> None:
        slots = asyncio.Semaphore(self.limits.max_connections)
        accepted: deque[float] = deque(maxlen=self.limits.max_per_s)  # when
        loop = asyncio.get_running_loop()

        def ended(task: "asyncio.Task[None]") -> None:
            self._sessions.pop(task).release()
            slots.release()

        async with asyncio.TaskGroup() as group:
            for number in itertools.count(1):
                await slots.acquire()
                if len(accepted) == accepted.maxlen:
                    await asyncio.sleep(accepted[0] + 1.0 - loop.time())
                session = Session(await _accept(listener), number, self)
                accepted.append(loop.time())
                task = group.create_task(session.run(), name=f"burnish-proxy-{number}")
                self._sessions[task] = session
                task.add_done_callback(ended)


async def _accept(listener: socket.socket) -> socket.socket:
    """The next connection. Not `sock_accept`: cancelled at the wrong moment it loses one without closing it."""
    while True:
        try:
            return listener.accept()[0]
        except BlockingIOError:
            await _readable(listener)
        except ConnectionError:
            continue  # it gave up while it waited
        except OSError as error:
            if error.errno not in _SHORTAGE:
                raise
            await asyncio.sleep(_ACCEPT_PAUSE_S)


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
