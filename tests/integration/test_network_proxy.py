"""The proxy between real clients and real servers on loopback."""

import asyncio
import functools
import http.server
import os
import shutil
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.errors import SandboxError
from burnish.sandbox.network import Closed, NetworkPolicy, NetworkRecord, Proxy, ProxyLimits, Verdict
from tests.integration._proxied import WAIT_S, certificate, closing, echo, hello_page, proxied, run, serving

NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
NEEDS_OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    return certificate(tmp_path_factory.mktemp("tls"), "files.example", "other.example")


@pytest.fixture
def web_port(tmp_path: Path) -> Iterator[int]:
    """http.server with one file, in a thread."""
    (tmp_path / "a.txt").write_text("from http.server")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@NEEDS_CURL
@pytest.mark.parametrize("options", [["-x", "http://{}"], ["-p", "-x", "http://{}"], ["-x", "socks5h://{}"]])
async def test_curl_fetches_a_page(web_port: int, options: list[str]) -> None:
    names = {"web.example": ["127.0.0.1"]}
    async with proxied([f"web.example:{web_port}", f"127.0.0.1:{web_port}"], names=names) as rig:
        proxy = [option.format(f"127.0.0.1:{rig.port}") for option in options]
        code, output = await run("curl", "-sS", *proxy, f"http://web.example:{web_port}/a.txt")
        assert (code, output) == (0, "from http.server")
        await rig.settled()
        (verdict,), (closed,) = rig.verdicts(), rig.closed()
        assert verdict.allowed and verdict.rule == f"web.example:{web_port}" and verdict.addresses == ("127.0.0.1",)
        assert closed.cause is None and closed.address == "127.0.0.1"
        assert closed.bytes_up > 50 and closed.bytes_down > len("from http.server")
        assert rig.lookups == ["web.example"]

        code, output = await run("curl", "-sS", *proxy, "http://evil.example/")
        assert code != 0 or output == "evil.example:80 is not in the allow list\n"
        assert rig.lookups == ["web.example"]  # not even resolved
        assert rig.verdicts()[-1].reason == "evil.example:80 is not in the allow list"


@NEEDS_CURL
@NEEDS_OPENSSL
@pytest.mark.parametrize("scheme", ["http", "socks5h"])
async def test_curl_fetches_over_tls(tls: tuple[ssl.SSLContext, Path], scheme: str) -> None:
    context, cert = tls
    names = {name: ["127.0.0.1"] for name in ("files.example", "other.example")}
    async with (
        serving(hello_page, tls=context) as port,
        proxied([f"files.example:{port}", f"127.0.0.1:{port}"], names=names) as rig,
    ):
        fetch = ["curl", "-sS", "-x", f"{scheme}://127.0.0.1:{rig.port}", "--cacert", str(cert)]
        assert await run(*fetch, f"https://files.example:{port}/") == (0, "hello")
        # --connect-to: CONNECT names one host, the ClientHello another
        aside = ["--connect-to", f"other.example:{port}:files.example:{port}"]
        code, output = await run(*fetch, *aside, f"https://other.example:{port}/")
        assert code == 35 and "access denied" in output  # what the alert says
        await rig.settled()
        assert rig.verdicts()[-1].reason == "the TLS server name is not files.example"
        assert [record.cause for record in rig.closed()] == [None, "the TLS server name is not files.example"]


async def test_the_reason_reaches_a_client_that_shows_only_the_status_line() -> None:
    async with proxied([]) as rig:
        answer = await rig.talk(b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 pypi.org:443 is not in the allow list\r\n")
        assert answer.endswith(b"\r\n\r\npypi.org:443 is not in the allow list\n")
        assert await rig.talk(
            b"\x05\x01\x00\x05\x01\x00\x03\x08pypi.org\x01\xbb"
        ) == b"\x05\x00\x05\x02\x00\x01" + bytes(6)


async def test_half_close_and_counts() -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())  # answers only after the end of the question

    async with serving(shout) as port, proxied([f"127.0.0.1:{port}"]) as rig:
        reader, writer = await rig.tunnel(f"127.0.0.1:{port}")
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(b"x" * 1_000_000)
            writer.write_eof()
            assert await reader.read() == b"X" * 1_000_000
        await rig.settled()
        (closed,) = rig.closed()
        assert (closed.bytes_up, closed.bytes_down, closed.cause) == (1_000_000, 1_000_000, None)


async def test_a_slow_reader_stops_the_writer() -> None:
    """Nothing piles up in the proxy: the server can write what the kernel's buffers hold, and no more."""
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < 200 << 20:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async with serving(flood) as port, proxied([f"127.0.0.1:{port}"]) as rig:
        sock = socket.create_connection(("127.0.0.1", rig.port))
        with sock:
            sock.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.2)
            assert 0 < sent < 64 << 20


async def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with serving(echo) as port, proxied([f"127.0.0.1:{port}"], family=socket.AF_UNIX, address=path):
        reader, writer = await asyncio.open_unix_connection(path)
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly".encode())
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(5) == b"early"


async def test_the_next_address_is_tried() -> None:
    async with serving(echo) as port:
        names = {"two.example": ["127.0.0.3", "127.0.0.1"]}
        rules = [f"two.example:{port}", f"127.0.0.3:{port}", f"127.0.0.1:{port}"]
        async with proxied(rules, names=names) as rig:
            _, writer = await rig.tunnel(f"two.example:{port}")
            async with closing(writer):
                pass
            await rig.settled()
            assert rig.verdicts()[0].addresses == ("127.0.0.3", "127.0.0.1")
            assert rig.closed()[0].address == "127.0.0.1"


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with proxied([f"127.0.0.1:{port}", "gone.example"]) as rig:
        assert b"502 127.0.0.1:" in await rig.talk(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        assert b"502 gone.example does not resolve\r\n" in await rig.talk(b"GET http://gone.example/ HTTP/1.1\r\n\r\n")
        assert (await rig.talk(b"\x05\x01\x00\x05\x01\x00\x03\x0cgone.example\x00\x50"))[2:4] == b"\x05\x04"
        await rig.settled()
        # That is no denial.
        assert [verdict.allowed for verdict in rig.verdicts()] == [True, True, True]
        assert [closed.address for closed in rig.closed()] == [None, None, None] and all(c.cause for c in rig.closed())


async def test_a_new_policy_replaces_the_whole_and_cuts_what_it_denies() -> None:
    async with (
        serving(echo) as kept,
        serving(echo) as dropped,
        proxied([f"127.0.0.1:{kept}", f"127.0.0.1:{dropped}"]) as rig,
    ):
        kept_reader, kept_writer = await rig.tunnel(f"127.0.0.1:{kept}")
        reader, writer = await rig.tunnel(f"127.0.0.1:{dropped}")
        waiting, late_writer = await rig.client()  # has not asked yet
        async with closing(kept_writer, writer, late_writer), asyncio.timeout(WAIT_S):
            rig.proxy.policy = NetworkPolicy.parse([f"127.0.0.1:{kept}"])
            with pytest.raises(ConnectionResetError):  # and not the end of the stream
                await reader.read()
            kept_writer.write(b"still here")
            assert await kept_reader.readexactly(10) == b"still here"
            late_writer.write(f"CONNECT 127.0.0.1:{dropped} HTTP/1.1\r\n\r\n".encode())
            assert b" 403 " in await waiting.read()
            rig.proxy.policy = NetworkPolicy.none()
            with pytest.raises(ConnectionResetError):
                await kept_reader.read()
        await rig.settled()
        assert [closed.cause for closed in rig.closed()] == ["the policy changed"] * 2


async def test_a_policy_that_comes_while_a_name_is_resolved_counts() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        asked.set()
        await answer.wait()
        return ["127.0.0.1"]

    records: list[NetworkRecord] = []
    async with serving(echo) as port:
        rules = [f"slow.example:{port}", f"127.0.0.1:{port}"]
        proxy = Proxy(NetworkPolicy.parse(rules), on_record=records.append, resolve=resolve)
        listener = socket.create_server(("127.0.0.1", 0))
        proxy.serve(listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(f"CONNECT slow.example:{port} HTTP/1.1\r\n\r\n".encode())
            await asked.wait()
            proxy.policy = NetworkPolicy.parse(rules[1:])
            answer.set()
            assert b" 403 slow.example" in await reader.read()
        await proxy.close()
    assert [getattr(record, "allowed", None) for record in records] == [False]


async def test_closing_at_every_stage_leaves_nothing() -> None:
    """The guards of the test suite see tasks; an unclosed socket is a warning, and warnings are errors."""
    never = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        await never.wait()
        return []

    async with serving(echo) as port:
        proxy = Proxy(
            NetworkPolicy.parse(["slow.example", f"127.0.0.1:{port}", "192.0.2.1"]),
            on_record=lambda record: None,
            resolve=resolve,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        proxy.serve(listener)
        writers = []
        for said in (
            b"", b"\x05", b"CONNECT slow.exam", b"CONNECT slow.example:80 HTTP/1.1\r\n\r\n",
        b"CONNECT 192.0.2.1:80 HTTP/1.1\r\n\r\n",
            b"CONNECT denied.example:80 HTTP/1.1\r\n\r\n", f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nx".encode(),
        ):  # fmt: skip
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(said)
            writers.append(writer)
        async with closing(*writers):
            await asyncio.sleep(0.1)
            late = await asyncio.open_connection(*listener.getsockname())
            await proxy.close()
            await proxy.close()
            async with closing(late[1]):
                assert proxy.num_connections == 0


async def test_closing_a_proxy_that_never_ran() -> None:
    proxy = Proxy(NetworkPolicy.none(), on_record=lambda record: None)
    await proxy.close()
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.serve(listener)
    await proxy.close()
    assert listener.fileno() == -1


@pytest.mark.parametrize("failing", [Verdict, Closed])
async def test_what_cannot_be_recorded_does_not_pass(failing: type[NetworkRecord]) -> None:
    def full(record: NetworkRecord) -> None:
        if isinstance(record, failing):
            raise OSError(28, "No space left on device")

    async with serving(echo) as port:
        proxy = Proxy(NetworkPolicy.parse([f"127.0.0.1:{port}"]), on_record=full)
        listener = socket.create_server(("127.0.0.1", 0))
        ended = proxy.serve(listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            if failing is Closed:
                await reader.readuntil(b"\r\n\r\n")
                writer.write_eof()
            assert await reader.read() == b""
            await asyncio.wait([ended])
        with pytest.raises(SandboxError, match=r"network record: OSError.*No space left"):
            await proxy.close()


async def test_the_hosts_own_resolver() -> None:
    async with serving(echo) as port:
        proxy = Proxy(
            NetworkPolicy.parse([f"localhost:{port}", f"127.0.0.1:{port}"]), on_record=lambda record: None,
            limits=ProxyLimits(max_connections=1),
        )  # fmt: skip
        assert "127.0.0.1" in await proxy.resolve("localhost", port)
        await proxy.close()


# What the supervisor of a box does: a listening socket on the loopback of the box's own network, handed to the owner.
IN_THE_BOX = """
import fcntl, socket, struct, sys
with socket.socket() as sock:  # IFF_UP for lo
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh22x", b"lo", 1))
channel = socket.socket(fileno=int(sys.argv[1]))
with socket.create_server(("127.0.0.1", 3128)) as listener:
    socket.send_fds(channel, [b"x"], [listener.fileno()])
channel.recv(1)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=5)
except ConnectionRefusedError:
    print("not without the proxy;", end=" ")
client = socket.create_connection(("127.0.0.1", 3128), timeout=20)
client.sendall(f"GET http://127.0.0.1:{sys.argv[2]}/ HTTP/1.1\\r\\n\\r\\n".encode())
print(client.makefile().read().splitlines()[-1])
"""


@pytest.mark.namespaces
async def test_a_socket_of_another_network_namespace() -> None:
    ours, theirs = socket.socketpair()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    async with serving(hello_page) as port:
        with ours, theirs:
            command = ["unshare", *user, "--net", sys.executable, "-c", IN_THE_BOX, str(theirs.fileno()), str(port)]
            box = await asyncio.create_subprocess_exec(
                *command, pass_fds=[theirs.fileno()], stdout=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(WAIT_S):
                _, (descriptor,), _, _ = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
                proxy = Proxy(NetworkPolicy.parse([f"127.0.0.1:{port}"]), on_record=lambda record: None)
                proxy.serve(socket.socket(fileno=descriptor))
                ours.send(b"x")
                output, _ = await box.communicate()
            await proxy.close()
    assert output == b"not without the proxy; hello\n"


async def test_connections_come_no_faster_than_a_log_can_bear() -> None:
    """A program that is denied as often as it can ask would fill the owner's disk with verdicts."""
    async with proxied(["a.example"], limits=ProxyLimits(max_per_s=3)) as rig:
        asking = [asyncio.create_task(rig.talk(b"CONNECT b.example:1 HTTP/1.1\r\n\r\n")) for _ in range(8)]
        began = time.monotonic()
        await asyncio.wait(asking, timeout=0.2)
        assert len(rig.verdicts()) <= 3 * (1 + time.monotonic() - began)
        assert all(b" 403 " in answer for answer in await asyncio.gather(*asking))
        assert len(rig.verdicts()) == 8
