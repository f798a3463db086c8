"""The network of a sandbox that has one: a proxy in the owner's loop, listening inside the sandbox.

The sandbox's first process opens a listening socket on the loopback of its own network namespace and sends it to the
owner, so that the proxy accepts inside and connects outside. Nothing else crosses.
"""

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

    def set_policy(self, policy: NetworkPolicy) -> None:
        self.policy = policy
        if self._proxy is not None:
            self._proxy.policy = policy

    async def serve(self, listener: int) -> None:
        """Takes over the listening socket of a new life; that of the life before is closed."""
        accepting = socket.socket(fileno=listener)
        try:
            await self.close()
        except BaseException:
            accepting.close()
            raise
        self._proxy = Proxy(self.policy, on_record=self._record)
        self._proxy.serve(accepting)

    async def close(self) -> None:
        """Cuts what is open. Idempotent."""
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            await proxy.close()

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
