"""A proxy with what is on both sides of it, for tests: servers on loopback, names that lead there, clients."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from burnish.sandbox.network import Closed, NetworkPolicy, NetworkRecord, Proxy, ProxyLimits, Verdict

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WAIT_S = 20  # no test may hang


@dataclass
class Rig:
    """One proxy, what it recorded, and what it was asked to resolve."""

    proxy: Proxy
    port: int
    records: list[NetworkRecord]
    lookups: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def verdicts(self) -> list[Verdict]:
        return [record for record in self.records if isinstance(record, Verdict)]

    def closed(self) -> list[Closed]:
        return [record for record in self.records if isinstance(record, Closed)]

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def talk(self, data: bytes) -> bytes:
        """Says something, and returns everything that is answered until the end."""
        reader, writer = await self.client()
        async with closing(writer), asyncio.timeout(WAIT_S):
            writer.write(data)
            return await reader.read()

    async def tunnel(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that is connected through the proxy."""
        reader, writer = await self.client()
        writer.write(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        async with asyncio.timeout(WAIT_S):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        return reader, writer

    async def settled(self) -> None:
        """Waits until no connection is open."""
        async with asyncio.timeout(WAIT_S):
            while self.proxy.num_connections:  # noqa: ASYNC110 (nothing tells when)
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def closing(*writers: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Closes for good; a connection that was broken off is closed too."""
    try:
        yield
    finally:
        for writer in writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def proxied(
    rules: Sequence[str],
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    limits: ProxyLimits = ProxyLimits(),
    family: socket.AddressFamily = socket.AF_INET,
    address: object = ("127.0.0.1", 0),
) -> AsyncIterator[Rig]:
    """A proxy under these rules; `names` are all that resolve. Checks that nothing is left of it."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(address)  # type: ignore[arg-type]
    listener.listen(128)
    port = listener.getsockname()[1] if family == socket.AF_INET else 0

    async def resolve(host: str, port: int) -> Sequence[str]:
        rig.lookups.append(host)
        if host not in (names or {}):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return (names or {})[host]

    records: list[NetworkRecord] = []
    proxy = Proxy(NetworkPolicy.parse(rules), on_record=records.append, resolve=resolve, limits=limits)
    rig = Rig(proxy, port, records)
    proxy.serve(listener)
    try:
        yield rig
    finally:
        await proxy.close()
        assert proxy.num_connections == 0 and listener.fileno() == -1


@contextlib.asynccontextmanager
async def serving(
    handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """A server; its port. Ends its handlers too."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            async with closing(writer):
                await handler(reader, writer)
        tasks.discard(task)

    server = await asyncio.start_server(handle, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says back whatever it hears."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def hello_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One HTTP answer."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    await writer.drain()


def certificate(folder: Path, *names: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate of its own for these names, and the certificate."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
        "2",
            "-keyout", key, "-out", cert, "-subj", f"/CN={names[0]}",
            "-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


async def run(*command: str) -> tuple[int, str]:
    """A program's exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(WAIT_S):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")
