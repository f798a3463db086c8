"""A shell that remembers, in real sandboxes."""

from collections.abc import AsyncIterator

import pytest

from burnish.errors import UserError
from burnish.sandbox.process.backend import ProcessBackend
from burnish.sandbox.process.box import ProcessBox
from burnish.sandbox.session import ShellSession

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def box() -> AsyncIterator[ProcessBox]:
    async with ProcessBackend(pool=0) as backend:
        try:
            made = await backend.create()
        except UserError as error:
            pytest.skip(str(error))
        async with made:
            yield made


async def out(shell: ShellSession, line: str) -> str:
    result = await shell.run(line)
    assert result.ok, result
    return result.stdout.decode()


async def test_what_a_line_sets_is_there_for_the_next(box: ProcessBox) -> None:
    shell = ShellSession(box)
    await out(shell, "mkdir -p 'a b' && cd 'a b' && export X='1 \"2\" $3' && umask 027")
    await out(shell, 'hi() { echo "hi $1"; }; y=not')
    assert await out(shell, 'pwd; echo "$X"; umask; hi you; echo "[$y]"') == (
        '/home/agent/a b\n1 "2" $3\n0027\nhi you\n[]\n'
    )


async def test_the_exit_code_is_the_lines_and_the_state_is_kept(box: ProcessBox) -> None:
    shell = ShellSession(box)
    assert (await shell.run("export A=1; exit 3")).exit_code == 3
    assert (await shell.run("export B=2; false")).exit_code == 1
    assert (await shell.run("syntax (")).exit_code not in (0, None)
    assert await out(shell, "echo $A$B") == "12\n"
    assert (await shell.run("cat", stdin=b"input")).stdout == b"input"


async def test_a_killed_line_changes_nothing(box: ProcessBox) -> None:
    shell = ShellSession(box)
    await out(shell, "export A=kept")
    result = await shell.run("export A=lost; sleep 100", timeout_s=0.3)
    assert result.timed_out
    assert await out(shell, "echo $A") == "kept\n"


async def test_a_working_directory_that_is_gone(box: ProcessBox) -> None:
    shell = ShellSession(box)
    await out(shell, "mkdir gone; cd gone; export A=1")
    await box.commands.run("rmdir gone")
    assert await out(shell, "pwd; echo $A") == "/home/agent\n1\n"


async def test_snapshots_forks_and_returns_keep_it(box: ProcessBox) -> None:
    shell = ShellSession(box)
    await out(shell, "cd /tmp; export A=before; f() { echo f; }")
    async with await box.snapshot() as snapshot:
        await out(shell, "cd /; export A=after")
        (fork,) = await box.fork()
        async with fork:
            assert await out(ShellSession(fork), "pwd; echo $A; f") == "/\nafter\nf\n"
            await out(ShellSession(fork), "export A=fork")
        assert await out(shell, "echo $A") == "after\n"
        await box.restore(snapshot)
        assert await out(shell, "pwd; echo $A; f") == "/tmp\nbefore\nf\n"
