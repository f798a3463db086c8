"""One connection of a box: read what it asks for, judge, resolve, judge again, connect, relay, tell."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from burnish.sandbox.network import http, socks
from burnish.sandbox.network.addresses import Address, parse_address
from burnish.sandbox.network.policy import NetworkPolicy, Rule
from burnish.sandbox.network.records import Closed, NetworkRecord, Verdict
from burnish.sandbox.network.relay import Relay
from burnish.sandbox.network.target import Ask, Refused, Target
from burnish.sandbox.network.tls import ALERT_ACCESS_DENIED
from burnish.sandbox.network.wire import Wire

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a name and a port to IP addresses as text, the best first. OSError: there are none."""

MAX_ADDRESSES = 8  # of one name; a resolver that answers with thousands does not get thousands of attempts
FAREWELL_S = 1.0  # for a client to read why it was refused
MAX_FAREWELL_CHUNKS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyLimits:
    """What one box may take of its owner.

    Example: ProxyLimits(max_connections=16)
    """

    max_connections: int = 64  # at once; the next ones wait in the kernel's queue
    max_per_s: int = 200  # new ones, each of which may write a line of the owner's audit log
    max_head_bytes: int = 16 << 10  # of an HTTP request
    handshake_s: float = 15.0  # to say what is wanted
    connect_s: float = 15.0  # to resolve and connect
    idle_s: float = 300.0  # without a byte in either direction


class Owner(Protocol):
    """What a session needs of its proxy."""

    @property
    def policy(self) -> NetworkPolicy: ...
    @property
    def limits(self) -> ProxyLimits: ...
    async def resolve(self, host: str, port: int) -> Sequence[str]: ...
    def tell(self, record: NetworkRecord) -> None: ...


class Session:
    """One accepted connection. `run` is its task; `release` must follow, also when the task never came to run."""

    def __init__(self, client: socket.socket, number: int, owner: Owner) -> None:
        self._client = Wire(client)
        self._number, self._owner = number, owner
        self._upstream: Wire | None = None
        self._relay: Relay | None = None
        self._protocol: str | None = None
        self._target: Target | None = None
        self._addresses: tuple[Address, ...] = ()
        self._connected: Address | None = None
        self._to_itself = False  # the connection ends at one of the host's own addresses
        self._allowed = False
        self._tunnel = False  # the client was told that it is connected
        self._cause: str | None = "the proxy was closed"  # stands when nothing else is found out before the end

    async def run(self) -> None:
        """Never raises for what client or server do; a SandboxError of `tell` passes, and a broken resolver's error."""
        try:
            await self._serve()
            self._cause = None
        except Refused as refused:
            self._cause = refused.reason
            if not self._allowed or refused.kind == "policy":
                self._tell_verdict(reason=refused.reason)
            await self._turn_away(refused)
        except TimeoutError:
            self._cause = f"nothing moved for {self._owner.limits.idle_s:g} s"
        except OSError as error:
            self._cause = f"broken off: {error.strerror or type(error).__name__}"
        finally:
            if self._allowed:
                self._tell_closed()

    def release(self) -> None:
        """Closes both sockets; both ends of what was broken off see an error."""
        for wire in (self._client, self._upstream):
            if wire is not None:
                if self._cause and self._tunnel:
                    wire.reset()
                else:
                    wire.close()

    def denied_by(self, policy: NetworkPolicy) -> bool:
        """Whether a new policy refuses what this connection does now. One that is not judged yet meets it later."""
        if not self._allowed or self._target is None:
            return False
        try:
            self._judge(self._target, policy)
        except Refused:
            return True
        return False

    def cut(self, task: "asyncio.Task[None]") -> None:
        """Ends the connection because the policy changed."""
        self._cause = "the policy changed"
        task.cancel()

    def _judge(self, target: Target, policy: NetworkPolicy) -> None:
        policy.admit(target)
        for address in self._addresses:
            policy.admit_address(target, address)
            if self._to_itself and not policy.names_exactly(address, target.port):
                raise Refused(f"{target} leads to the machine of the proxy", kind="policy")

    async def _serve(self) -> None:
        limits = self._owner.limits
        ask = await self._read_ask()
        if ask is None:
            return
        self._target = ask.target
        rule = self._owner.policy.admit(ask.target)
        try:
            async with asyncio.timeout(limits.connect_s):
                await self._find_addresses(ask.target, rule)
                upstream = await self._connect(ask.target)
        except TimeoutError:
            if not self._allowed:  # the name took all the time; it was not denied
                self._tell_allowed(rule)
            raise Refused(f"{ask.target}: no connection in {limits.connect_s:g} s", kind="unreachable") from None
        if ask.protocol != "http":
            await self._client.send(socks.CONNECTED if ask.protocol == "socks5" else http.CONNECTED)
        self._tunnel = True
        relay = Relay(self._client, upstream, ask, handshake_s=limits.handshake_s, idle_s=limits.idle_s)
        self._relay = relay
        await relay.run()
        if ask.protocol == "http":
            await self._farewell()

    async def _read_ask(self) -> Ask | None:
        """What the client wants; None when it went without a word."""
        limits = self._owner.limits
        first = None
        try:
            async with asyncio.timeout(limits.handshake_s):
                first = await self._client.peek()
                if first is None:
                    return None
                if first == socks.VERSION:
                    self._protocol = "socks5"
                    return await socks.read_request(self._client)
                if not bytes((first,)).isalpha():
                    raise Refused("neither HTTP nor SOCKS5")
                self._protocol = "http"
                ask = http.parse_request(await self._client.until(b"\r\n\r\n", max_bytes=limits.max_head_bytes))
                self._protocol = ask.protocol
                return ask
        except TimeoutError:
            if first is None:
                return None
            raise Refused(f"no complete request in {limits.handshake_s:g} s", kind="timeout") from None

    async def _find_addresses(self, target: Target, rule: Rule) -> None:
        """Resolves a name, once, and keeps what the policy of this moment lets it lead to."""
        found: Sequence[Address] = () if target.address is None else (target.address,)
        if target.address is None:
            try:
                texts = await self._owner.resolve(target.host, target.port)
            except OSError:
                texts = ()
            parsed = (parse_address(text) for text in texts)
            found = list(dict.fromkeys(address for address in parsed if address is not None))[:MAX_ADDRESSES]
            if not found:
                self._tell_allowed(rule)
                raise Refused(f"{target.host} does not resolve", kind="unreachable")
        policy = self._owner.policy  # a new one may have come while we waited
        rule = policy.admit(target)
        self._addresses = tuple(found)
        permitted = []
        for address in found:
            try:
                policy.admit_address(target, address)
            except Refused as refused:
                last = refused
            else:
                permitted.append(address)
        if not permitted:
            raise last
        self._addresses = tuple(permitted)
        self._tell_allowed(rule)

    async def _connect(self, target: Target) -> Wire:
        """A connection to the first address that answers. Each gets its share of the time; none is looked up again."""
        share_s = self._owner.limits.connect_s / len(self._addresses)
        reason = ""
        for address in self._addresses:
            try:
                async with asyncio.timeout(share_s):
                    upstream = await self._connect_to(address, target.port)
                self._to_itself = upstream.sock.getsockname()[0] == upstream.sock.getpeername()[0]
            except OSError as error:  # includes the timeout of this share
                reason = error.strerror or "no answer"
                continue
            self._connected = address
            self._addresses = (address,)
            self._judge(target, self._owner.policy)
            return upstream
        raise Refused(f"{target}: {reason}", kind="unreachable")

    async def _connect_to(self, address: Address, port: int) -> Wire:
        if self._upstream is not None:
            self._upstream.close()
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        self._upstream = Wire(socket.socket(family, socket.SOCK_STREAM))
        await asyncio.get_running_loop().sock_connect(self._upstream.sock, (str(address), port))
        return self._upstream

    async def _turn_away(self, refused: Refused) -> None:
        """Tells the client why, in its protocol, as far as it listens."""
        with contextlib.suppress(OSError):  # it does not have to
            async with asyncio.timeout(FAREWELL_S):
                if self._tunnel and self._protocol == "http":
                    return  # the server's answer may have begun
                if self._tunnel:
                    await self._client.send(ALERT_ACCESS_DENIED)
                elif self._protocol == "socks5":
                    await self._client.send(socks.refusal(refused))
                elif self._protocol is not None:
                    await self._client.send(http.refusal(refused))
            await self._farewell()

    async def _farewell(self) -> None:
        """Closing on unread data would reset the connection and take the answer along: reads until the client goes."""
        self._client.end()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(FAREWELL_S):
                for _ in range(MAX_FAREWELL_CHUNKS):
                    if not await self._client.read():
                        return

    def _tell_allowed(self, rule: Rule) -> None:
        self._allowed = True
        self._tell_verdict(rule=rule)

    def _tell_verdict(self, *, rule: Rule | None = None, reason: str | None = None) -> None:
        self._owner.tell(
            Verdict(
                connection=self._number,
                protocol=self._protocol,
                host=self._target.host if self._target else None,
                port=self._target.port if self._target else None,
                addresses=tuple(str(address) for address in self._addresses),
                allowed=rule is not None,
                rule=rule.text if rule else None,
                reason=reason,
            )
        )

    def _tell_closed(self) -> None:
        assert self._target is not None
        self._owner.tell(
            Closed(
                connection=self._number,
                host=self._target.host,
                port=self._target.port,
                address=None if self._connected is None else str(self._connected),
                bytes_up=self._relay.bytes_up if self._relay else 0,
                bytes_down=self._relay.bytes_down if self._relay else 0,
                cause=self._cause,
            )
        )
