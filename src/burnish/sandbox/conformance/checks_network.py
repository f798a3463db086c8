"""Network: none."""

import contextlib
import socket

from burnish.sandbox.conformance.suite import Bench, Registry, expect

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
_FAMILIES = """
import json, socket
answers = {}
families = {"netlink": 16, "packet": 17, "vsock": 40, "alg": 38, "bluetooth": 31, "can": 29, "xdp": 44}
for name, number in families.items():
    try:
        socket.socket(number, socket.SOCK_RAW).close()
        answers[name] = "done"
    except OSError:
        answers[name] = "refused"
print(json.dumps(answers))
"""


@check("python", "network_none")
async def nothing_outside_can_be_reached(bench: Bench) -> None:
    """No TCP, UDP, IPv6, names, raw packets, private or metadata address."""
    answers = await bench.probe(_OUTSIDE)
    done = [name for name, outcome in answers.items() if outcome != "refused"]
    expect(not done, f"reached: {done}")


@check("python", "network_none")
async def odd_socket_families_are_refused(bench: Bench) -> None:
    """Only unix and internet sockets exist."""
    answers = await bench.probe(_FAMILIES)
    done = [name for name, outcome in answers.items() if outcome != "refused"]
    expect(not done, f"possible: {done}")


@check("shell", "network_none")
async def the_loopback_is_the_only_interface(bench: Bench) -> None:
    """The kernel lists no other."""
    result = await bench.sh("cat /proc/net/dev")
    names = [line.split(b":")[0].strip() for line in result.stdout.splitlines()[2:]]
    expect(names == [b"lo"], f"interfaces: {names}")


@check("python", "network_none")
async def servers_of_the_host_are_not_there(bench: Bench) -> None:
    """Neither a TCP port on our loopback nor an abstract unix socket of ours answers."""
    abstract = f"\0burnish-check-{id(bench)}"
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        unix.bind(abstract)
        unix.listen()
        port = tcp.getsockname()[1]
        source = (
            "import json, socket\nanswers = []\n"
            f"for family, address in ((socket.AF_INET, ('127.0.0.1', {port})), (socket.AF_UNIX, {abstract!r})):\n"
            "    try:\n        socket.socket(family).connect(address)\n        answers.append('done')\n"
            "    except OSError:\n        answers.append('refused')\nprint(json.dumps(answers))"
        )
        answers = await bench.probe(source)
    expect(answers == ["refused", "refused"], f"TCP and abstract unix: {answers}")


@check("python", "network_none")
async def programs_reach_themselves(bench: Bench) -> None:
    """127.0.0.1 works inside a sandbox: tests of servers are a common task."""
    source = (
        "import json, socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        "c = socket.create_connection(s.getsockname())\nprint(json.dumps('met'))"
    )
    expect(await bench.probe(source) == "met", "the loopback is down")


CHECKS = _registry.all()
