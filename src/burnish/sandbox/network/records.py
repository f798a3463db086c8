"""What the proxy tells its owner: who was asked for, what was decided, and how it ended."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A decision about one connection. A refusal may follow an allowance, when the TLS server name was another one.

    Example: Verdict(connection=7, protocol="connect", host="pypi.org", port=443, addresses=("151.101.0.223",),
        allowed=True, rule="pypi.org:443", reason=None)
    """

    connection: int  # counts the connections of one proxy
    protocol: str | None  # None when the first byte was of no protocol that is spoken here
    host: str | None  # None when the request was not understood
    port: int | None
    addresses: tuple[str, ...]  # those it may be connected to, in order; of a refusal, those the name led to
    allowed: bool
    rule: str | None  # the rule that allowed it, as written
    reason: str | None  # why it was refused


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """The end of a connection that had been allowed.

    Example: Closed(connection=7, host="pypi.org", port=443, address="151.101.0.223", bytes_up=517, bytes_down=4096,
        cause=None)
    """

    connection: int
    host: str
    port: int
    address: str | None  # None when it never came to a connection
    bytes_up: int  # towards the server
    bytes_down: int
    cause: str | None  # what broke it off; None when both sides were done


NetworkRecord = Verdict | Closed
