"""The network of a sandbox that has one: a proxy in the owner's loop, listening inside the sandbox.

The sandbox's first process opens a listening socket on the loopback of its own network namespace and sends it to the
owner, so that the proxy accepts inside and connects outside. Nothing else crosses.
"""

import asyncio
import socket

from burnish.errors import UserError
from burnish.sandbox.base import OnNetwork
from burnish.sandbox.network import NetworkPolicy, NetworkRecord, Proxy, Verdict
from burnish.sandbox.process.confine import PROXY_PORT

_HTTP = f"http://127.0.0.1:{PROXY_PORT}"
ENVIRONMENT = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _HTTP),
    **dict.fromkeys(("all_proxy", "ALL_PROXY"), f"socks5h://127.0.0.1:{PROXY_PORT}"),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
}
"""What programs look at to find their proxy."""


class BoxNetwork:
    """The policy of one sandbox, and the proxy of its present life."""

    def __init__(self, sandbox: str, policy: NetworkPolicy, on_record: OnNetwork | None) -> None:
        self._sandbox, self.policy = sandbox, policy
        self.num_denials = 0
        self.on_record = on_record
        self._proxy: Proxy | None = None
        self._cutting: list[asyncio.Task[None]] = []

    def set_policy(self, policy: NetworkPolicy) -> None:
        self.policy = policy
        if self._proxy is not None:
            self._proxy.policy = policy

    def serve(self, listener: int) -> None:
        """Takes over the listening socket of a new life; the connections of the life before are cut."""
        self._cut()
        self._proxy = Proxy(self.policy, on_record=self._record)
        self._proxy.serve(socket.socket(fileno=listener))

    async def close(self) -> None:
        """Returns when nothing is open any more. Idempotent. Raises SandboxError when recording had failed."""
        self._cut()
        cutting, self._cutting = self._cutting, []
        for outcome in await asyncio.gather(*cutting, return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _cut(self) -> None:
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            unheard = [task for task in self._cutting if not task.done() or task.exception() is not None]
            self._cutting = [*unheard, asyncio.create_task(proxy.close(), name="sandbox:cut-network")]

    def _record(self, record: NetworkRecord) -> None:
        if isinstance(record, Verdict) and not record.allowed:
            self.num_denials += 1
        if self.on_record is not None:
            self.on_record(self._sandbox, record)


def require_network(network: BoxNetwork | None) -> BoxNetwork:
    """Raises UserError when the sandbox has none."""
    if network is None:
        raise UserError(
            "this sandbox has no network", where="set_network", fix="create it with network=NetworkPolicy.none()"
        )
    return network
