"""The sandbox that runs nothing."""

import pytest

from burnish.errors import SandboxError, UserError
from burnish.observe.emit import Event, attached
from burnish.sandbox.base import SandboxFileError
from burnish.sandbox.memory import MemoryBackend, MemoryCall, MemoryReply
from burnish.types import Limits


async def test_a_command_is_a_function_of_the_files() -> None:
    def python3(call: MemoryCall) -> MemoryReply:
        return MemoryReply(stdout=call.files[call.path(call.argv[1])].upper(), exit_code=3)

    backend = MemoryBackend(commands={"python3": python3})
    async with await backend.create() as box:
        await box.files.write("a.py", "print")
        result = await box.commands.run("python3 a.py")
    assert (result.exit_code, result.stdout, result.ok) == (3, b"PRINT", False)


async def test_code_is_an_argument_of_python() -> None:
    backend = MemoryBackend(commands={"python3": lambda call: MemoryReply(stdout=" ".join(call.argv).encode())})
    async with await backend.create() as box:
        assert (await box.commands.run_code("python", b"print")).stdout == b"python3 -c print"
        with pytest.raises(UserError, match="no interpreter for 'cobol'"):
            await box.commands.run_code("cobol", "print")  # type: ignore[arg-type]


async def test_a_command_may_be_a_coroutine_and_may_fail_like_a_sandbox() -> None:
    async def broken(call: MemoryCall) -> MemoryReply:
        raise SandboxError(f"{call.argv[0]}: host died")

    async with await MemoryBackend(fallback=broken).create() as box:
        with pytest.raises(SandboxError, match="anything: host died"):
            await box.commands.run(["anything"])
        assert (await box.commands.run(["true"])).ok


async def test_pretended_time_is_held_against_the_limit() -> None:
    async with await MemoryBackend().create(limits=Limits(wall_s=2.0)) as box:
        in_time = await box.commands.run(["sleep", "1.5"])
        late = await box.commands.run(["sleep", "1.5"], timeout_s=1.0)
    assert (in_time.ok, in_time.wall_s) == (True, 1.5)
    assert (late.timed_out, late.limit_hit, late.signal, late.exit_code, late.wall_s) == (True, "wall", 9, None, 1.0)


async def test_files_form_directories() -> None:
    async with await MemoryBackend().create() as box:
        await box.files.write("a/b", b"x")
        assert await box.files.exists("/home/agent/a")
        assert await box.files.read("../agent/./a/b") == b"x"
        for path in ("a", "a/b/c", "new/"):
            with pytest.raises(SandboxFileError):
                await box.files.write(path, b"")
        assert (await box.commands.run(["cat", "a/b", "missing"])).exit_code == 1


async def test_an_empty_command_is_a_users_mistake() -> None:
    async with await MemoryBackend().create() as box:
        with pytest.raises(UserError, match="empty"):
            await box.commands.run([])


async def test_its_life_is_told() -> None:
    seen: list[Event] = []
    backend = MemoryBackend()
    with attached(seen.append):
        box = await backend.create()
        await backend.close()
        await box.kill()
    assert [(event["event"], event["id"]) for event in seen] == [("sandbox.create", box.id), ("sandbox.kill", box.id)]
    with pytest.raises(SandboxError, match="closed"):
        await backend.create()
