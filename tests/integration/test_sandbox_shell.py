"""`burnish sandbox shell` on a real terminal."""

import os
import pty
import select
import sys
import time

import pytest

pytestmark = pytest.mark.namespaces

_DEADLINE_S = 60.0


class Terminal:
    """A child on a new terminal, typed at and read from."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self._outer = pty.fork()
        if self.pid == 0:
            os.execv(argv[0], argv)
        self.seen = b""

    def type(self, text: str) -> None:
        os.write(self._outer, text.encode())

    def wait_for(self, text: str) -> None:
        """Reads until `text` has appeared in what was not waited for yet."""
        deadline = time.monotonic() + _DEADLINE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self._outer], [], [], 0.5)[0]:
                self.seen += os.read(self._outer, 65536)
        self.seen = self.seen.partition(text.encode())[2]

    def exit_code(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._outer)
        return code


def test_a_person_can_work_in_a_sandbox() -> None:
    terminal = Terminal([sys.executable, "-m", "burnish", "sandbox", "shell"])
    terminal.type("echo $((40 + 2)) $(pwd)\n")
    terminal.wait_for("42 /home/agent")
    terminal.type("sleep 1000; echo woken $?\n")
    time.sleep(0.5)
    terminal.type("\x03")  # ctrl-C is for the program inside
    terminal.type("echo after-$((1 + 1)); exit 5\n")
    terminal.wait_for("after-2")
    assert terminal.exit_code() == 5
