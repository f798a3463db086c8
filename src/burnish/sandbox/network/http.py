"""The HTTP side of the proxy: `CONNECT host:port`, and plain requests in absolute form (RFC 9112 section 3.2).

A request is read strictly and written anew, so that the server sees exactly what was judged: one request, one Host, at
most one Content-Length. What two parsers could read in two ways is refused.
"""

import re
from collections.abc import Sequence

from burnish.sandbox.network.target import Ask, RefusalKind, Refused, Target, parse_authority

CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MAX_HEADERS = 100
_HOP_BY_HOP = {
    "connection", "proxy-connection", "keep-alive", "te", "trailer", "upgrade", "proxy-authorization",
    "proxy-authenticate", "host",
}  # fmt: skip
_FRAMING = {"host", "content-length", "transfer-encoding"}
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rf"({_TOKEN}) ([\x21-\x7e]+) HTTP/1\.([01])")
_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_ABSOLUTE = re.compile(r"http://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,15}")
_STATUS: dict[RefusalKind, int] = {
    "policy": 403, "malformed": 400, "unsupported": 400, "length": 431, "timeout": 408, "unreachable": 502,
}  # fmt: skip


def parse_request(head: bytes) -> Ask:
    """The request that a head (with the empty line at its end) makes. Raises Refused."""
    lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match = _REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise Refused("not an HTTP/1.x request line")
    headers = _parse_headers(lines[1:])
    method, url, minor = match.groups()
    if method == "CONNECT":
        if any(name in ("content-length", "transfer-encoding") for name, _ in headers):
            raise Refused("a CONNECT request with a body")
        return Ask(protocol="connect", target=parse_authority(url))
    found = _ABSOLUTE.fullmatch(url)
    if found is None:
        raise Refused("this is a proxy: ask with http://host/path, and with CONNECT for https", kind="unsupported")
    target = parse_authority(found[1], default_port=80)
    if target.address is None and target.port == 443:
        raise Refused("port 443 of a name carries TLS: use CONNECT", kind="policy")
    _check_host(headers, target)
    body_bytes = _body_bytes(headers)
    path = found[2] or "/"
    opening = [f"{method} {path if path.startswith('/') else f'/{path}'} HTTP/1.{minor}"]
    opening += [f"Host: {_host_header(target)}", *_end_to_end(headers), "Connection: close", "", ""]
    return Ask(protocol="http", target=target, opening="\r\n".join(opening).encode("latin-1"), body_bytes=body_bytes)


def refusal(refused: Refused) -> bytes:
    """The answer to a refused request. The reason stands in the status line too: most clients show nothing else."""
    body = f"{refused.reason}\n".encode("ascii", "replace")
    head = (
        f"HTTP/1.1 {_STATUS[refused.kind]} {refused.reason}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii", "replace") + body


def _parse_headers(lines: Sequence[str]) -> list[tuple[str, str]]:
    if len(lines) > _MAX_HEADERS:
        raise Refused(f"more than {_MAX_HEADERS} headers", kind="length")
    headers = []
    for line in lines:
        match = _HEADER.fullmatch(line)  # no bare CR or LF, no folded line, no space before the colon
        if match is None:
            raise Refused("a malformed header")
        headers.append((match[1].lower(), match[2].rstrip(" \t")))
    return headers


def _check_host(headers: Sequence[tuple[str, str]], target: Target) -> None:
    """The Host header may be missing (the target is known), but must not say something else."""
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) > 1 or any(parse_authority(host, default_port=80) != target for host in hosts):
        raise Refused("a Host header other than the URL's host", kind="policy")


def _body_bytes(headers: Sequence[tuple[str, str]]) -> int:
    if any(name == "transfer-encoding" for name, _ in headers):
        # Its end would have to be found in what the client sends. Such uploads are rare, and CONNECT takes them.
        raise Refused("Transfer-Encoding in a plain request: send Content-Length", kind="unsupported")
    lengths = [value for name, value in headers if name == "content-length"]
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(value) for value in lengths):
        raise Refused("more than one Content-Length, or one that is not a number")
    return int(lengths[0]) if lengths else 0


def _end_to_end(headers: Sequence[tuple[str, str]]) -> list[str]:
    named = {word.strip().lower() for name, value in headers if name == "connection" for word in value.split(",")}
    if named & _FRAMING:
        raise Refused("a Connection header that names Host, Content-Length or Transfer-Encoding")
    return [f"{name}: {value}" for name, value in headers if name not in _HOP_BY_HOP | named]


def _host_header(target: Target) -> str:
    return str(target) if target.port != 80 else str(target).removesuffix(":80")
