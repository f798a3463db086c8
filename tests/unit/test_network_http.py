"""Plain HTTP requests: read strictly, written anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.network.http import parse_request, refusal
from burnish.sandbox.network.target import Ask, Refused


def request(*lines: str) -> Ask:
    return parse_request("\r\n".join([*lines, "", ""]).encode("latin-1"))


def test_connect() -> None:
    ask = request("CONNECT pypi.org:443 HTTP/1.1", "Host: pypi.org:443", "User-Agent: pip")
    assert (ask.protocol, str(ask.target), ask.opening, ask.body_bytes) == ("connect", "pypi.org:443", b"", None)


def test_a_request_is_rewritten_for_the_server() -> None:
    ask = request(
        "POST http://Example.com:8080?q=1 HTTP/1.1", "Host: example.com:8080", "Proxy-Connection: keep-alive",
        "Connection: close, X-Secret", "X-Secret: 1", "Proxy-Authorization: Basic eDp5", "Upgrade: h2c", "TE: trailers",
        "Keep-Alive: 5", "Content-Length: 3", "Accept: */*",
    )  # fmt: skip
    assert ask.opening == (
        b"POST /?q=1 HTTP/1.1\r\nHost: example.com:8080\r\n"
        b"content-length: 3\r\naccept: */*\r\nConnection: close\r\n\r\n"
    )
    assert (ask.protocol, str(ask.target), ask.body_bytes) == ("http", "example.com:8080", 3)


def test_without_a_host_header_the_url_says_it() -> None:
    ask = request("GET HTTP://1.2.3.4/a?b HTTP/1.0")
    assert ask.opening == b"GET /a?b HTTP/1.0\r\nHost: 1.2.3.4\r\nConnection: close\r\n\r\n"
    assert ask.body_bytes == 0
    assert b"Host: [2001:db8::1]\r\n" in request("GET http://[2001:db8::1]/ HTTP/1.1", "Host: [2001:DB8::1]:80").opening


GET = "GET http://a.example/ HTTP/1.1"


@pytest.mark.parametrize(
    "lines",
    [
        ["GET / HTTP/1.1", "Host: a.example"], ["GET https://a.example/ HTTP/1.1"], ["GET ftp://a.example/ HTTP/1.1"],
        ["GET http://a.example/#x HTTP/1.1"], ["GET http:///x HTTP/1.1"], ["GET http://user@a.example/ HTTP/1.1"],
        ["GET http://a.example:443/ HTTP/1.1"], ["GET http://a.example\\@evil.example/ HTTP/1.1"],
        ["GET http://a.example/ HTTP/2.0"], ["GET http://a.example/ HTTP/1.1 "], ["GET  http://a.example/ HTTP/1.1"],
        ["GET http://a.example/a b HTTP/1.1"], ["GET http://a.example/"], ["G\u00cbT http://a.example/ HTTP/1.1"],
        ["", GET],
        ["GET http://a.example/\x00 HTTP/1.1"], ["GET http://a.example/\u00e9 HTTP/1.1"],
        ["CONNECT pypi.org HTTP/1.1"], ["CONNECT user@pypi.org:443 HTTP/1.1"], ["CONNECT http://pypi.org:443 HTTP/1.1"],
        ["CONNECT pypi.org:443 HTTP/1.1", "Content-Length: 5"], ["CONNECT pypi.org:443/x HTTP/1.1"],
        ["connect pypi.org:443 HTTP/1.1"], ["PRI * HTTP/2.0"],
        # the Host header
        [GET, "Host: b.example"], [GET, "Host: a.example:81"], [GET, "Host: a.example", "Host: a.example"],
        [GET, "Host:"],
        [GET, "Host: a.example, b.example"], [GET, "Host: x@a.example"],
        # smuggling
        [GET, "Content-Length: 5", "Transfer-Encoding: chunked"], [GET, "Transfer-Encoding: chunked"],
        [GET, "Transfer-Encoding : chunked"], [GET, " Transfer-Encoding: chunked"], [GET, "X: 1", " folded"],
        [GET, "Content-Length: 5", "Content-Length: 5"], [GET, "Content-Length: 5, 5"], [GET, "Content-Length: +5"],
        [GET, "Content-Length: 0x5"], [GET, "Content-Length: -1"], [GET, "Content-Length:"],
        [GET, "Content-Length: " + "9" * 16],
        [GET, "Connection: content-length", "Content-Length: 5"], [GET, "Connection: close,HOST", "Host: a.example"],
        [GET, "X: a\rHost: b.example"], [GET, "X: a\nHost: b.example"], [GET, "X\x00: a"], [GET, "X: \x00"],
        [GET, ": x"], [GET, "x"],
        [GET, *["X: 1"] * 101],
    ],
)  # fmt: skip
def test_refused(lines: list[str]) -> None:
    with pytest.raises(Refused):
        request(*lines)


LINES = st.lists(st.text(alphabet="Hhost: a.example\r\n\t\x00\u00e9,;", max_size=20), max_size=5)


@given(LINES, st.binary(max_size=60))
def test_any_head_is_an_ask_for_one_request_or_refused(lines: list[str], junk: bytes) -> None:
    for head in (junk + b"\r\n\r\n", "\r\n".join([GET, *lines, "", ""]).encode("latin-1")):
        try:
            ask = parse_request(head)
        except Refused:
            continue
        assert ask.opening.count(b"\r\n\r\n") == 1 and ask.opening.endswith(b"\r\n\r\n")
        assert ask.opening.count(b"\n") == ask.opening.count(b"\r") == ask.opening.count(b"\r\n")
        assert ask.opening.lower().count(b"\r\nhost:") == 1


def test_a_refusal_says_why_in_one_line() -> None:
    answer = refusal(Refused("pypi.org:22 is not in the allow list", kind="policy"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 pypi.org:22 is not in the allow list\r\n")
    assert body == b"pypi.org:22 is not in the allow list\n"
    assert f"Content-Length: {len(body)}".encode() in head
