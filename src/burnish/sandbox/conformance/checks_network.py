"""Network: none, or what a policy names."""

import asyncio
import contextlib
import socket

from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail
from burnish.sandbox.network import NetworkPolicy, NetworkRecord, Verdict

_registry = Registry()
check = _registry.check

_OUTSIDE = """
import json, socket
answers = {}
def attempt(name, function):
    try:
        function()
        answers[name] = "done"
    except OSError:
        answers[name] = "refused"
def connect(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        s.connect(address)
        if kind == socket.SOCK_DGRAM:
            s.send(b"x")
attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 53)))
attempt("udp", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 53)))
attempt("tcp6", lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 53)))
attempt("metadata", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)))
attempt("private", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("10.0.0.1", 53)))
attempt("names", lambda: socket.getaddrinfo("example.com", 80))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1))
print(json.dumps(answers))
"""


@check("python", "network_none")
async def nothing_outside_can_be_reached(bench: Bench) -> None:
    """No TCP, UDP, IPv6, names, raw packets, private or metadata address."""
    answers = await bench.probe(_OUTSIDE)
    done = [name for name, outcome in answers.items() if outcome != "refused"]
    expect(not done, f"reached: {done}")


@check("shell", "network_none")
async def the_loopback_is_the_only_interface(bench: Bench) -> None:
    """The kernel lists no other."""
    result = await bench.sh("cat /proc/net/dev")
    names = [line.split(b":")[0].strip() for line in result.stdout.splitlines()[2:]]
    expect(names == [b"lo"], f"interfaces: {names}")


@check("shell", "network_none")
async def there_is_no_route(bench: Bench) -> None:
    """No address but the loopback's is known, and no way to any other: true also where the machine is offline."""
    result = await bench.sh("tail -q -n +2 /proc/net/route /proc/net/arp; grep -v ' lo$' /proc/net/if_inet6")
    expect(result.stdout == b"", f"routes and addresses: {tail(result)}")
    result = await bench.sh("grep -v '[[:space:]]lo$' /proc/net/ipv6_route")
    expect(result.stdout == b"", f"IPv6 routes: {tail(result)}")


@check("python", "network_none")
async def servers_of_the_host_are_not_there(bench: Bench) -> None:
    """Neither a port on our loopback, TCP or UDP, of either kind of address, nor an abstract unix socket of ours."""
    abstract = f"\0burnish-check-{id(bench)}"
    with contextlib.ExitStack() as stack:
        targets: list[tuple[int, int, object]] = [(socket.AF_UNIX, socket.SOCK_STREAM, abstract)]
        servers = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))]
        servers[0].bind(abstract)
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                server = stack.enter_context(socket.socket(family, kind))
                with contextlib.suppress(OSError):  # a machine without IPv6
                    server.bind((address, 0))
                    targets.append((family, kind, server.getsockname()[:2]))
                    servers.append(server)
        for server in servers:
            server.setblocking(False)
            if server.type == socket.SOCK_STREAM:
                server.listen()
        plain = [(int(family), int(kind), address) for family, kind, address in targets]
        source = (
            f"import json, socket\nanswers = []\nfor family, kind, address in {plain!r}:\n"
            "    try:\n        with socket.socket(family, kind) as s:\n            s.settimeout(2)\n"
            "            s.connect(address)\n            s.send(b'x')\n            answers.append('sent')\n"
            "    except OSError:\n        answers.append('refused')\nprint(json.dumps(answers))"
        )
        answers = await bench.probe(source)
        for server, answer in zip(servers, answers, strict=True):
            is_stream = server.type == socket.SOCK_STREAM
            expect(answer == "refused" or not is_stream, f"a server of ours was reached: {answers}")
            try:  # a datagram may be sent to nobody
                server.accept() if is_stream else server.recv(1)
            except BlockingIOError:
                continue
            expect(False, "a server of ours was reached")


@check("python", "network_none")
async def programs_reach_themselves(bench: Bench) -> None:
    """127.0.0.1 works inside a sandbox: tests of servers are a common task."""
    source = (
        "import json, socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        "c = socket.create_connection(s.getsockname())\nprint(json.dumps('met'))"
    )
    expect(await bench.probe(source) == "met", "the loopback is down")


_ASK = """
import json, socket, sys
answers = []
for target in sys.argv[1:]:
    with socket.create_connection(("127.0.0.1", 3128), timeout=5) as link:
        link.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode())
        answer = link.recv(4096).decode().split()[1]
        if answer == "200":
            link.sendall(b"ping")
            answer += " " + link.recv(16).decode()
        answers.append(answer)
print(json.dumps(answers))
"""


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.read(16)).upper())
    await writer.drain()
    writer.close()


@check("network_allowlist", "python")
async def a_policy_lets_through_what_it_names_and_nothing_else(bench: Bench) -> None:
    """Through the proxy only, recorded, counted in the result; a new policy replaces the whole of the old one."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    other = await asyncio.start_server(_echo, "127.0.0.1", 0)
    allowed, denied = (f"127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in (server, other))
    records: list[tuple[str, NetworkRecord]] = []
    policy = NetworkPolicy.parse([allowed])

    def hear(sandbox: str, record: NetworkRecord) -> None:
        records.append((sandbox, record))

    try:
        async with await bench.backend.create(limits=LIMITS, network=policy, on_network=hear) as box:
            ask = ["python3", "-I", "-S", "-c", _ASK, allowed, denied, "169.254.169.254:80"]
            result = await box.commands.run(ask)
            expect(result.stdout == b'["200 PING", "403", "403"]\n', f"answers: {tail(result)}")
            expect(result.network_denials == 2, f"{result.network_denials} denials of 2 were counted")
            verdicts = [(name, record.allowed) for name, record in records if isinstance(record, Verdict)]
            expect(verdicts == [(box.id, True), (box.id, False), (box.id, False)], f"recorded: {records}")
            (fork,) = await box.fork()
            async with fork:
                result = await fork.commands.run(ask)
                expect(result.stdout == b'["200 PING", "403", "403"]\n', f"a fork has another policy: {tail(result)}")
                expect(records[-1][0] == fork.id, f"a fork's traffic is recorded for {records[-1][0]}")
            box.set_network(NetworkPolicy.parse([denied]))
            result = await box.commands.run(ask)
            expect(result.stdout == b'["403", "200 PING", "403"]\n', f"after the change: {tail(result)}")
            host, port = allowed.split(":")
            direct = f"import socket; socket.create_connection(('{host}', {port}), timeout=2)"
            result = await box.commands.run(["python3", "-I", "-S", "-c", direct])
            expect(not result.ok, "there is a way out beside the proxy")
    finally:
        server.close()
        other.close()


CHECKS = _registry.all()
