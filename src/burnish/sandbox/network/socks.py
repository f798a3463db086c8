"""The SOCKS5 side of the proxy (RFC 1928): CONNECT to a name, an IPv4 or an IPv6 address, without authentication."""

from ipaddress import IPv4Address, IPv6Address

from burnish.sandbox.network.target import Ask, RefusalKind, Refused, make_target
from burnish.sandbox.network.wire import Wire

VERSION = 5
NO_AUTHENTICATION = bytes((VERSION, 0))
_NOTHING_ACCEPTABLE = bytes((VERSION, 0xFF))
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_CODES: dict[RefusalKind, int] = {
    "policy": 2, "malformed": 1, "unsupported": 7, "length": 1, "timeout": 1, "unreachable": 4,
}  # fmt: skip
_BAD_ADDRESS_TYPE = 8


class _RefusedWith(Refused):
    """Refused with an answer of its own."""

    def __init__(self, reason: str, answer: bytes) -> None:
        super().__init__(reason, kind="unsupported")
        self.answer = answer


def reply(code: int) -> bytes:
    """An answer to a request. The bound address is left out: the box need not know an address of its host."""
    return bytes((VERSION, code, 0, _IPV4)) + bytes(6)


CONNECTED = reply(0)


def refusal(refused: Refused) -> bytes:
    """The answer to a refused request; 2 is "not allowed by ruleset"."""
    return refused.answer if isinstance(refused, _RefusedWith) else reply(_CODES[refused.kind])


async def read_request(wire: Wire) -> Ask:
    """The greeting and the request. Raises Refused."""
    _, num_methods = await wire.exactly(2)
    if 0 not in await wire.exactly(num_methods):
        raise _RefusedWith("SOCKS5 without the method 'no authentication'", _NOTHING_ACCEPTABLE)
    await wire.send(NO_AUTHENTICATION)
    version, command, reserved, kind = await wire.exactly(4)
    if version != VERSION or reserved != 0:
        raise Refused("a malformed SOCKS5 request")
    if kind == _IPV4:
        host = str(IPv4Address(await wire.exactly(4)))
    elif kind == _IPV6:
        host = str(IPv6Address(await wire.exactly(16)))
    elif kind == _NAME:
        (length,) = await wire.exactly(1)
        name = await wire.exactly(length)
        if not name.isascii():
            raise Refused("a host name that is not ASCII (ask for its xn-- form)")
        host = name.decode()
    else:
        raise _RefusedWith("an unknown SOCKS5 address type", reply(_BAD_ADDRESS_TYPE))
    port = int.from_bytes(await wire.exactly(2))
    if command != _CONNECT:
        raise Refused("a SOCKS5 command other than CONNECT", kind="unsupported")
    return Ask(protocol="socks5", target=make_target(host, port))
