"""A box that wants more than it may have: from the proxy, from the machine, and from an allowed host."""

import asyncio
import contextlib
import errno
import shutil
import socket
import ssl
import unittest.mock
from pathlib import Path

import pytest

from burnish.sandbox.network import NetworkPolicy, ProxyLimits, http, proxy, relay, session, wire
from tests.integration._proxied import WAIT_S, certificate, closing, echo, hello_page, proxied, serving
from tests.unit.test_network_tls import hello, records, sni

NAMES = {"a.example": ["127.0.0.1"]}
NEEDS_OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def rules(port: int) -> list[str]:
    """A name rule, and the consent to reach loopback that lets a test have its server there."""
    return [f"a.example:{port}", f"127.0.0.1:{port}"]


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Listening:
    """A server that keeps what it hears and answers with a fixed text."""

    def __init__(self, answer: bytes = b"") -> None:
        self.heard, self.answer = bytearray(), answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.heard += data
            writer.write(self.answer)
            self.answer = b""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0"])
async def test_a_name_that_leads_inside_is_refused_after_resolution(address: str) -> None:
    async with serving(echo) as port:
        names = {"evil.example": [address]}
        async with proxied([f"*.example:{port}", f"evil.example:{port}"], names=names) as rig:
            assert b" 403 evil.example" in await rig.talk(f"CONNECT evil.example:{port} HTTP/1.1\r\n\r\n".encode())
            (verdict,) = rig.verdicts()
            assert not verdict.allowed and verdict.addresses == (address.removeprefix("::ffff:"),)
            assert rig.closed() == []


async def test_a_name_is_resolved_once_and_the_judged_address_is_used() -> None:
    """DNS rebinding: a second answer would lead elsewhere, so there is no second question."""
    async with serving(echo) as port:
        names = {"evil.example": ["10.0.0.1", "127.0.0.1", "192.168.0.1"]}
        async with proxied([f"evil.example:{port}", f"127.0.0.1:{port}"], names=names) as rig:
            _, writer = await rig.tunnel(f"evil.example:{port}")
            names["evil.example"] = ["10.0.0.1"]
            async with closing(writer):
                pass
            await rig.settled()
            assert rig.lookups == ["evil.example"]
            assert rig.verdicts()[0].addresses == ("127.0.0.1",) and rig.closed()[0].address == "127.0.0.1"


async def test_the_machine_itself_is_not_reached_through_its_own_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; asks for the route
        except OSError:
            pytest.skip("this machine has no address beside loopback")
        own = probe.getsockname()[0]
    heard = Listening()
    async with serving(heard, host=own) as port:
        network = f"{own.rpartition('.')[0]}.0/24:{port}"
        async with proxied([network, f"me.example:{port}"], names={"me.example": [own]}) as rig:
            for host in (own, "me.example"):
                answer = await rig.talk(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\nhello".encode())
                assert b"leads to the machine of the proxy" in answer
            await rig.settled()
            assert [verdict.allowed for verdict in rig.verdicts()] == [True, False] * 2
            assert heard.heard == b""
            rig.proxy.policy = NetworkPolicy.parse([f"{own}:{port}"])  # which is consent, until it is taken back
            reader, writer = await rig.tunnel(f"{own}:{port}")
            async with closing(writer), asyncio.timeout(WAIT_S):
                rig.proxy.policy = NetworkPolicy.parse([network])
                with pytest.raises(ConnectionResetError):
                    await reader.read()
    assert heard.heard == b""


@NEEDS_OPENSSL
@pytest.mark.parametrize("curve", [None, "secp384r1"])  # the second makes the server ask for another ClientHello
async def test_real_tls(tmp_path: Path, curve: str | None) -> None:
    server, cert = certificate(tmp_path, "a.example", "b.example")
    if curve is not None:
        server.set_ecdh_curve(curve)
        server.minimum_version = ssl.TLSVersion.TLSv1_3
    client = ssl.create_default_context(cafile=cert)
    async with serving(hello_page, tls=server) as port, proxied(rules(port), names=NAMES) as rig:
        reader, writer = await rig.tunnel(f"a.example:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            await writer.start_tls(client, server_hostname="a.example")
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"hello")
        _, writer = await rig.tunnel(f"a.example:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
                await writer.start_tls(client, server_hostname="b.example")
        await rig.settled()
        assert [verdict.allowed for verdict in rig.verdicts()] == [True, True, False]


GOOD, EVIL = records(hello(sni(b"a.example"))), records(hello(sni(b"evil.example")))
REFUSED_STARTS = {
    "another name": EVIL,
    "in pieces": records(hello(sni(b"evil.example")), *[7] * 9),
    "no name": records(hello()),
    "an address": records(hello(sni(b"127.0.0.1"))),
    "a name and more": records(hello(sni(b"a.example\x00.evil.example"))),
    "garbage": b"\x16\x03\x01\x00\x05hello",
    "a second hello at once": records(hello(sni(b"a.example")) + hello(sni(b"evil.example"))),
}


@pytest.mark.parametrize("start", REFUSED_STARTS.values(), ids=REFUSED_STARTS)
async def test_a_client_hello_for_somebody_else_is_cut(start: bytes) -> None:
    listening = Listening()
    async with serving(listening) as port, proxied(rules(port), names=NAMES) as rig:
        reader, writer = await rig.tunnel(f"a.example:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(start)
            assert await reader.read() == bytes.fromhex("15030300020231")
        await rig.settled()
        assert [verdict.allowed for verdict in rig.verdicts()] == [True, False]
        assert rig.closed()[0].bytes_up == 0 and rig.closed()[0].cause == rig.verdicts()[1].reason
    assert listening.heard == b""


async def test_what_is_no_tls_does_not_go_to_a_name_on_the_port_of_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = Listening()
    async with serving(listening) as port, proxied(rules(port), names=NAMES) as rig:
        monkeypatch.setattr(relay, "TLS_PORT", port)
        reader, writer = await rig.tunnel(f"a.example:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            await reader.read()
        await rig.settled()
        assert rig.verdicts()[-1].reason == f"a.example:{port} was sent something other than TLS"
    assert listening.heard == b""


RETRY = bytes.fromhex(
    "16030300580200005403 03 cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c".replace(" ", "")
) + bytes(0x58 - 38)
SKIPPED = b"\x14\x03\x03\x00\x01\x01" + b"\x17\x03\x03\x00\x20" + bytes(32)  # a compatibility record, early data


@pytest.mark.parametrize("between", [b"", SKIPPED])
@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize(("second", "passes"), [(GOOD, True), (EVIL, False)])
async def test_the_second_hello_after_a_retry_request(
    between: bytes, pipelined: bool, second: bytes, passes: bool
) -> None:
    listening = Listening(RETRY)
    async with serving(listening) as port, proxied(rules(port), names=NAMES) as rig:
        reader, writer = await rig.tunnel(f"a.example:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(GOOD + between + second if pipelined else GOOD)
            assert await reader.readexactly(len(RETRY)) == RETRY
            if not pipelined:
                writer.write(between + second)
            writer.write_eof()
            await reader.read()
        await rig.settled()
        assert [verdict.allowed for verdict in rig.verdicts()] == ([True] if passes else [True, False])
    assert bytes(listening.heard) == GOOD + between + (second if passes else b"")


async def test_a_second_request_behind_the_first_reaches_nobody() -> None:
    listening = Listening(b"HTTP/1.1 200 OK\r\n\r\n")
    async with serving(listening) as port, proxied(rules(port), names=NAMES) as rig:
        reader, writer = await rig.client()
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(f"POST http://a.example:{port}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\n".encode())
            writer.write(b"bodyGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n")
    assert listening.heard.endswith(b"\r\n\r\nbody") and b"evil" not in listening.heard


SMUGGLED = {
    "both lengths": b"GET http://a.example/ HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "injected header": b"GET http://a.example/ HTTP/1.1\r\nX: a\nHost: evil.example\r\n\r\n",
    "another host": b"GET http://a.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "user name": b"CONNECT a.example:80@evil.example:80 HTTP/1.1\r\n\r\n",
    "zone": b"CONNECT [fe80::1%25lo]:80 HTTP/1.1\r\n\r\n",
    "hexadecimal": b"CONNECT 0x7f.1:80 HTTP/1.1\r\n\r\n",
    "decimal": b"CONNECT 2130706433:80 HTTP/1.1\r\n\r\n",
    "origin form": b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
}


@pytest.mark.parametrize("said", SMUGGLED.values(), ids=SMUGGLED)
async def test_a_request_that_can_be_read_in_two_ways(said: bytes) -> None:
    async with proxied(["a.example", "*.evil.example", "127.0.0.1"], names=NAMES) as rig:
        answer = await rig.talk(said)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 ")) and answer.count(b"HTTP/1.1") == 1
        assert [verdict.allowed for verdict in rig.verdicts()] == [False] and rig.lookups == []


@pytest.mark.parametrize(
    "said", [b"\x00", b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b"\x16\x03\x01\x00\x05", b"\xff" * 70_000, b"\r\n"]
)
async def test_garbage_is_dropped_without_an_answer(said: bytes) -> None:
    async with proxied(["a.example"]) as rig:
        assert await rig.talk(said) == b""
        assert [(v.protocol, v.host, v.reason) for v in rig.verdicts()] == [(None, None, "neither HTTP nor SOCKS5")]


async def test_who_says_nothing_is_no_event() -> None:
    async with proxied(["a.example"]) as rig:
        _, writer = await rig.client()
        async with closing(writer):
            pass
        await rig.settled()
        assert rig.records == []


@pytest.mark.parametrize(("said", "status"), [(b"GET http://a.example/ HTTP/1.1\r\nX: ", b"408"), (b"C", b"408")])
async def test_a_request_that_trickles_in_is_given_up(said: bytes, status: bytes) -> None:
    async with proxied(["a.example"], limits=ProxyLimits(handshake_s=0.3)) as rig:
        reader, writer = await rig.client()

        async def trickle() -> None:
            for byte in said + b"x" * 10_000:
                writer.write(bytes((byte,)))
                await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        async with closing(writer), asyncio.timeout(WAIT_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 " + status)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


async def test_a_head_without_end_is_given_up() -> None:
    async with proxied(["a.example"], limits=ProxyLimits(max_head_bytes=1000)) as rig:
        assert (await rig.talk(b"GET http://a.example/ HTTP/1.1\r\nX: " + b"x" * 5000)).startswith(b"HTTP/1.1 431 ")


async def test_a_client_hello_that_never_ends_is_given_up() -> None:
    async with serving(echo) as port, proxied(rules(port), names=NAMES, limits=ProxyLimits(handshake_s=0.2)) as rig:
        reader, writer = await rig.tunnel(f"a.example:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(GOOD[:20])
            await reader.read()
        await rig.settled()
        assert rig.closed()[0].cause == "a TLS ClientHello that was not finished in time"


async def test_a_silent_tunnel_is_given_up() -> None:
    async with serving(echo) as port, proxied(rules(port), limits=ProxyLimits(idle_s=0.2)) as rig:
        reader, writer = await rig.tunnel(f"127.0.0.1:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionResetError):
                await reader.read()
        await rig.settled()
        assert rig.closed()[0].cause == "nothing moved for 0.2 s"


async def test_a_byte_that_moves_at_the_last_moment_changes_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ask = http.parse_request(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
        traffic = relay.Relay(wire.Wire(ours), wire.Wire(theirs), ask, handshake_s=1, idle_s=1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0) as traffic._idle:
                while not traffic._idle.expired():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(0)
                traffic._moved()  # the deadline can be moved no more, and saying so would end the proxy
                raise asyncio.CancelledError


async def test_an_owner_short_of_descriptors_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "_ACCEPT_PAUSE_S", 0)
    with socket.socket() as accepted:
        outcomes = [OSError(errno.EMFILE, "too many"), ConnectionAbortedError(), (accepted, None)]
        listener = unittest.mock.Mock(accept=unittest.mock.Mock(side_effect=outcomes))
        assert await proxy._accept(listener) is accepted
    with pytest.raises(OSError, match="bad"):
        await proxy._accept(unittest.mock.Mock(accept=unittest.mock.Mock(side_effect=OSError(errno.EBADF, "bad"))))


async def test_a_resolver_that_answers_with_thousands() -> None:
    many = [f"10.{index // 250}.7.{index % 250}" for index in range(5000)]
    async with serving(echo) as port, proxied(rules(port), names={"a.example": ["127.0.0.1", *many]}) as rig:
        _, writer = await rig.tunnel(f"a.example:{port}")
        async with closing(writer):
            pass
    async with proxied(["a.example"], names={"a.example": many}) as rig:
        await rig.talk(b"CONNECT a.example:80 HTTP/1.1\r\n\r\n")
        assert len(rig.verdicts()[0].addresses) == session.MAX_ADDRESSES


async def test_an_answer_before_the_end_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FAREWELL_S", 0.1)
    async with serving(hello_page) as port, proxied(rules(port), names=NAMES) as rig:
        reader, writer = await rig.client()
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(f"POST http://a.example:{port}/ HTTP/1.1\r\nContent-Length: 99\r\n\r\nsome".encode())
            assert (await reader.read()).endswith(b"hello")
            await rig.settled()  # though the client keeps its side open
        assert rig.closed()[0].cause is None


async def test_a_resolver_that_hangs_is_given_up() -> None:
    async with proxied(["a.example"], limits=ProxyLimits(connect_s=0.2)) as rig:
        rig.proxy._resolve = lambda host, port: asyncio.sleep(3600, [])
        answer = await rig.talk(b"CONNECT a.example:80 HTTP/1.1\r\n\r\n")
        assert b" 502 a.example:80: no connection in 0.2 s\r\n" in answer
        await rig.settled()
        assert [verdict.allowed for verdict in rig.verdicts()] == [True] and len(rig.closed()) == 1  # and no denial


async def test_connections_over_the_bound_wait_for_their_turn() -> None:
    async with serving(echo) as port, proxied(rules(port), limits=ProxyLimits(max_connections=2)) as rig:
        _, first = await rig.tunnel(f"127.0.0.1:{port}")
        _, second = await rig.tunnel(f"127.0.0.1:{port}")
        third = asyncio.create_task(rig.tunnel(f"127.0.0.1:{port}"))
        await asyncio.sleep(0.1)
        assert not third.done() and rig.proxy.num_connections == 2
        async with closing(first):
            pass
        _, writer = await third
        async with closing(second, writer):
            pass


async def test_an_answer_that_broke_off_does_not_look_whole() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of")
        await writer.drain()
        await asyncio.sleep(0.05)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with serving(break_off) as port, proxied(rules(port), names=NAMES) as rig:
        reader, writer = await rig.client()
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(f"GET http://a.example:{port}/ HTTP/1.1\r\n\r\n".encode())
            with pytest.raises(ConnectionResetError):
                await reader.read()
        await rig.settled()
        assert rig.closed()[0].cause == "broken off: Connection reset by peer"


async def test_a_storm_of_everything_leaves_no_descriptor() -> None:
    starts = [
        b"", b"\x05", b"\x05\x01\x00\x05\x01\x00\x03\x09a.example\x00\x50", b"\xff" * 9, *SMUGGLED.values(),
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    ]  # fmt: skip
    async with serving(echo) as port, proxied(rules(port), names=NAMES, limits=ProxyLimits(max_connections=8)) as rig:
        starts += [f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode() + hello for hello in (GOOD, EVIL, b"plain")]

        async def one(index: int) -> None:
            with contextlib.suppress(OSError):
                reader, writer = await rig.client()
                async with closing(writer):
                    writer.write(starts[index % len(starts)])
                    if index % 3:
                        await asyncio.sleep(0.001 * (index % 7))
                        writer.write_eof()
                        await reader.read()
                    if index % 5 == 0:
                        writer.transport.abort()

        await one(0)
        await rig.settled()
        before = num_descriptors()
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            for index in range(150):
                group.create_task(one(index))
        await rig.settled()
        await asyncio.sleep(0.05)  # the server's side of the last ones
        assert num_descriptors() <= before
        allowed = {verdict.connection for verdict in rig.verdicts() if verdict.allowed}
        assert sorted(allowed) == sorted(closed.connection for closed in rig.closed())
