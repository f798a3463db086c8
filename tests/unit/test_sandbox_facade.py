"""The way in for people, on the backend that runs nothing."""

import threading

import pytest

import burnish.sandbox
from burnish.errors import SandboxError, UserError
from burnish.sandbox import Sandbox, SyncSandbox, make_backend
from burnish.sandbox.facade import _shared


async def test_a_sandbox_by_name() -> None:
    async with await Sandbox.create(image="host", network=None, backend="memory", envs={"A": "1"}) as box:
        await box.files.write("a", "text")
        assert (await box.commands.run("cat a")).stdout == b"text"
        assert b"A=1" in (await box.commands.run("env")).stdout
        assert await box.files.exists("a")
        assert box.limits.wall_s > 0 and box.id


async def test_sandboxes_of_one_loop_share_a_backend_until_the_last_is_gone() -> None:
    first = await Sandbox.create(backend="memory")
    second = await Sandbox.create(backend="memory")
    assert first.id != second.id
    await first.kill()
    await first.kill()
    assert (await second.commands.run("true")).ok
    await second.kill()
    with pytest.raises(SandboxError):
        await second.commands.run("true")
    assert not any(_shared._by_loop.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": "ubuntu", "backend": "memory"}, "image: the memory backend has no images"),
        ({"network": "all"}, "network: a list of rules is needed"),
        ({"backend": "docker"}, "no sandbox backend 'docker'\n  fix: use one of: gvisor, memory, process"),
    ],
)
async def test_what_is_not_supported_is_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        await Sandbox.create(**options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert not any(_shared._by_loop.values())


def test_the_same_without_await() -> None:
    threads = threading.active_count()
    with SyncSandbox.create(backend="memory") as box:
        box.files.write("a", b"x")
        assert box.files.read("a") == b"x" and box.files.exists("a") and not box.files.exists("b")
        assert box.commands.run(["echo", "hi"], timeout_s=1).stdout == b"hi\n"
        assert box.commands.run_code("python", "pass").exit_code == 127  # this backend has no python3
        assert box.id and box.limits.num_pids > 0
    box.kill()
    assert threading.active_count() == threads


def test_a_refused_creation_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(UserError):
        SyncSandbox.create(image="nope")
    assert threading.active_count() == threads


def test_names_of_the_package() -> None:
    assert make_backend("memory").name == "memory" and make_backend("process").level == "process"
    for name in burnish.sandbox.__all__:
        assert getattr(burnish.sandbox, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = burnish.sandbox.nothing_here
