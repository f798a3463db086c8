"""Jobs of the sandbox host, without a host: children of the test that do one piece of work."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from burnish.sandbox.process.jobs import Jobs, Refused


def end_of(jobs: Jobs) -> tuple[str, str, bool]:
    (pid,) = jobs.pids
    _, status = os.waitpid(pid, 0)
    told = jobs.finish(pid, os.waitstatus_to_exitcode(status))
    return told["done"], told["cause"] or told["result"], told["is_refused"]


def ended(work: Callable[[], str]) -> tuple[str, str, bool]:
    jobs = Jobs()
    jobs.start("a", work, [])
    return end_of(jobs)


def fail() -> str:
    raise OSError(28, "no room")


def refuse() -> str:
    raise Refused("not like this")


def crash() -> str:
    raise KeyError


def vanish() -> str:
    os._exit(7)


def test_every_end_has_its_words() -> None:
    assert ended(lambda: "found") == ("a", "found", False)
    assert ended(fail) == ("a", "no room", False)
    assert ended(refuse) == ("a", "not like this", True)
    assert ended(crash) == ("a", "KeyError", False)
    assert ended(vanish) == ("a", "it exited with 7", False)


def test_a_cancelled_job_is_killed() -> None:
    reader, writer = os.pipe()
    jobs = Jobs()
    jobs.start("a", lambda: os.read(reader, 1).decode(), [reader, writer])
    jobs.cancel("another one")
    jobs.cancel("a")
    assert end_of(jobs) == ("a", f"it was killed by signal {int(signal.SIGKILL)}", False)
    os.close(reader)
    os.close(writer)


def test_a_job_has_the_descriptors_that_it_is_for() -> None:
    """Another one's end of a pipe would keep that pipe open for as long as the job runs."""
    reader, writer = os.pipe()
    jobs = Jobs()

    def tell() -> str:
        os.write(writer, " ".join(entry.name for entry in Path("/proc/self/fd").iterdir()).encode())
        return ""

    jobs.start("a", tell, [writer])
    assert end_of(jobs) == ("a", "", False)
    os.close(writer)
    found = sorted(map(int, os.read(reader, 1000).split()))
    os.close(reader)
    assert found[:3] == [0, 1, 2] and writer in found and reader not in found
    assert len(found) == 6  # and its report, and the listing itself
