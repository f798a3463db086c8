"""What a box asks for, in one normal form, and the one exception that says no.

A name has one spelling here: lower case, no trailing dot, ASCII. Whatever looks like a number is an address by the
strict rules or is refused: libc would take "0x7f.1" and "2130706433" for 127.0.0.1.
"""

import re
from dataclasses import dataclass
from typing import Literal

from burnish.sandbox.network.addresses import Address, parse_address

RefusalKind = Literal["policy", "malformed", "unsupported", "length", "timeout", "unreachable"]
Protocol = Literal["connect", "http", "socks5"]

MAX_NAME_CHARS = 253  # RFC 1035
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_END = re.compile(r"[0-9]+|0x[0-9a-f]*")  # what the URL standard calls "ends in a number"
_PORT = re.compile(r"[0-9]{1,5}")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*)(:(?P<port>.*))?", re.DOTALL)


class Refused(Exception):
    """The proxy says no. `reason` is one line for people; of what the box sent it repeats only a checked name."""

    def __init__(self, reason: str, *, kind: RefusalKind = "malformed") -> None:
        self.reason, self.kind = reason, kind
        super().__init__(reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A host and a port, normalised. `address` is None for a name.

    Example: Target(host="pypi.org", address=None, port=443)
    """

    host: str
    address: Address | None
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One request to be connected.

    Example: Ask(protocol="http", target=..., opening=b"GET / HTTP/1.1\\r\\n...", body_bytes=0)
    """

    protocol: Protocol
    target: Target
    opening: bytes = b""  # what the proxy itself says first to the server
    body_bytes: int | None = None  # how much of the client's data belongs to the request; None: a tunnel, all of it


def parse_name(text: str) -> str:
    """A host name in its normal form. Raises Refused for what is none, or looks like a number."""
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > MAX_NAME_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused("not a host name (a name with other letters is asked for in its xn-- form)")
    if _NUMERIC_END.fullmatch(labels[-1]):
        raise Refused("an address in a form other than four decimal numbers")
    return name


def make_target(host: str, port: int) -> Target:
    """The target for a host that is a name or an address without brackets. Raises Refused."""
    if not 1 <= port <= 65535:
        raise Refused("a port is a number from 1 to 65535")
    address = parse_address(host)
    return Target(host=parse_name(host) if address is None else str(address), address=address, port=port)


def parse_authority(text: str, *, default_port: int | None = None) -> Target:
    """The target that `host:port` or `[address]:port` names. Raises Refused, also for a user name before it."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise Refused("not host:port (an IPv6 address needs brackets)")
    host, port = match["host"], match["port"]
    if port is None and default_port is not None:
        port = str(default_port)
    if port is None or not _PORT.fullmatch(port):
        raise Refused("a port is a number from 1 to 65535")
    if host.startswith("["):
        host = host[1:-1]
        if ":" not in host:
            raise Refused("brackets go around an IPv6 address")
    return make_target(host, int(port))
