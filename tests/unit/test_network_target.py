"""What a box may write for a host and a port, in one normal form."""

import socket
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.network.addresses import parse_address
from burnish.sandbox.network.target import Refused, make_target, parse_authority


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("PyPI.org:443", "pypi.org:443"), ("pypi.org.:443", "pypi.org:443"), ("a_b.c-d:1", "a_b.c-d:1"),
        ("localhost:65535", "localhost:65535"), ("1.2.3.4:80", "1.2.3.4:80"), ("[::1]:80", "[::1]:80"),
        ("[2001:0DB8::1]:80", "[2001:db8::1]:80"), ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
        ("xn--bcher-kva.de:1", "xn--bcher-kva.de:1"),
        ("3com.com:80", "3com.com:80"), ("0x7f.com:80", "0x7f.com:80"),
    ],
)  # fmt: skip
def test_normal_form(text: str, normal: str) -> None:
    target = parse_authority(text)
    assert str(target) == normal
    assert (target.address is None) == (parse_address(target.host) is None)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", ":80", "pypi.org", "pypi.org:", "pypi.org:0", "pypi.org:65536", "pypi.org:+80", "pypi.org: 80",
        "pypi.org:8 0",
        "pypi.org:\uff18\uff10", "pypi.org:443:443", "user@pypi.org:443", "user:pw@pypi.org:443",
        "pypi.org:443@evil.com:443",
        "pypi.org\r\n:443", "pypi.org\x00:443", "pypi.org\\:443", "pypi%2eorg:443", "p\u0443pi.org:443",
        "pypi.org..:443", ".:443", "..:443",
        "-a.org:443", "a-.org:443", "a" * 64 + ".org:443", "a." * 127 + "org:443", "[pypi.org]:443", "[1.2.3.4]:443",
        "[::1:443", "::1:443",
        "[::1%eth0]:443", "[fe80::1%25eth0]:443", "[]:443", "[[::1]]:443", "[::1]x:443",
        # what libc would take for 127.0.0.1
        "0x7f.1:80", "2130706433:80", "0x7f000001:80", "017700000001:80", "127.1:80", "127.0.1:80", "0177.0.0.1:80",
        "127.0.0.0x1:80", "127.000.000.001:80", "127.0.0.1.:80", "\u0661\u0662\u0667.0.0.1:80", "0x.0x:80",
        "1.2.3.4.5:80", "256.1.1.1:80",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_authority(text)


def test_the_default_port() -> None:
    assert parse_authority("pypi.org", default_port=80).port == 80
    with pytest.raises(Refused):
        parse_authority("pypi.org:", default_port=80)


@given(st.text(alphabet="0123456789abcdefx.", min_size=1, max_size=20))
def test_what_libc_reads_as_an_address_is_that_address_or_refused(host: str) -> None:
    try:
        libc = socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return
    try:
        target = make_target(host, 80)
    except Refused:
        return
    assert target.address == ip_address(libc)


@given(st.text())
def test_any_text_is_a_target_or_refused(text: str) -> None:
    try:
        target = parse_authority(text)
    except Refused as refused:
        assert "\n" not in refused.reason and refused.reason.isascii()
    else:
        assert parse_authority(str(target)) == target
