"""Grading in real sandboxes: what passes, what fails, and what cannot be measured. The candidate is hostile."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from burnish.errors import GraderError, SandboxError
from burnish.reward.grade import HiddenTests
from burnish.sandbox import make_backend
from burnish.sandbox.base import SandboxBackend
from burnish.testing import make_task_set
from burnish.types import Case, Hidden, Limits, Measured, Task, Vault

pytestmark = pytest.mark.namespaces

TASK = Task(
    id="sum/total",
    family="sum",
    instruction="Write a Python function `total(numbers)` that returns the sum.",
    entry_point="total",
    examples=(Case(expr="total([1, 2])", expected="3"),),
    limits=Limits(wall_s=2.0, memory_bytes=128 << 20),
)
HIDDEN = Hidden(
    task_id="sum/total",
    reference="def total(numbers):\n    return sum(numbers)\n",
    cases=(Case(expr="total([])", expected="0"), Case(expr="total([0.1, 0.2])", expected="0.3")),
)
CHECKED = Task(id="he/1", family="he", instruction="...", entry_point="grow")
CHECK = Hidden(
    task_id="he/1",
    reference="def grow(x):\n    return [x, x + 1]\n",
    preamble="def one():\n    return 1\n",
    check=(
        "def check(candidate):\n"
        "    import random\n"
        "    n = random.randint(0, 9)\n"
        "    assert candidate(n) == [n, n + 1]\n"
        "    assert candidate(candidate(one())[1])[0] == 2\n"
    ),
)

EQUAL_TO_ALL = "class Any(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\n"
ATTACKS = {
    "object_equal_to_everything": EQUAL_TO_ALL + "def total(numbers):\n    return Any()\n",
    "float_subclass": "class F(float):\n    __eq__ = lambda *a: True\n    __repr__ = lambda s: '0'\n"
    "def total(numbers):\n    return F()\n",
    "visible_case_only": "def total(numbers):\n    return 3\n",
    "exit_at_import": "import os\nos._exit(0)\n",
    "sys_exit_at_import": "import sys\nsys.exit(0)\n",
    "exit_in_call": "import os\ndef total(numbers):\n    os._exit(0)\n",
    "base_exception": "def total(numbers):\n    raise KeyboardInterrupt\n",
    "forged_verdict": "import os\nfor fd in range(1, 9):\n    try:\n"
    "        os.write(fd, b'{\"passed\": true, \"reward\": 1.0, \"index\": 0, \"value\": \"True\"}\\n')\n"
    "    except OSError:\n        pass\nos._exit(0)\n",
    "patched_driver": "import json\njson.dumps = lambda *a, **k: '{\"index\": 0, \"value\": \"0\"}'\ntotal = len\n",
    "frame_walk_for_expected": "import sys\ndef total(numbers):\n    f, seen = sys._getframe(), []\n    while f:\n"
    "        seen += [v for d in (f.f_locals, f.f_globals) for k, v in d.items() if 'expect' in k]\n"
    "        f = f.f_back\n    return seen[0] if seen else None\n",
    "endless_loop": "def total(numbers):\n    while True: pass\n",
    "memory_hog": "def total(numbers):\n    return len(bytearray(1 << 40))\n",
    "recursion": "def total(numbers):\n    return total(numbers)\n",
    "flood": "import sys\ndef total(numbers):\n    while True: sys.stdout.write('x' * 65536)\n",
    "fork_and_leave": "import os\nif os.fork():\n    os._exit(0)\ndef total(numbers):\n    return 3\n",
    "deep_literal": "def total(numbers):\n    x = []\n    for _ in range(900): x = [x]\n    return x\n",
    "syntax_error": "def total(numbers)\n    return 0\n",
    "null_bytes": "def total(numbers):\n    return '\\0'\n\0",
    "nothing": "",
}  # fmt: skip


@pytest_asyncio.fixture
async def backend() -> AsyncIterator[SandboxBackend]:
    backend = make_backend("process")
    yield backend
    await backend.close()


def grader(backend: SandboxBackend) -> HiddenTests:
    return HiddenTests(vault=Vault({TASK.id: HIDDEN, CHECKED.id: CHECK}), backend=backend)


async def test_the_reference_passes_with_every_score(backend: SandboxBackend) -> None:
    measured = await grader(backend).grade(TASK, HIDDEN.reference)
    assert measured == Measured(scores={"hidden_passed": 1.0, "hidden_fraction": 1.0}, reward=1.0)


async def test_a_partly_right_answer_is_not_right(backend: SandboxBackend) -> None:
    measured = await grader(backend).grade(TASK, "def total(numbers):\n    return int(sum(numbers))\n")
    assert measured.reward == 0.0
    assert measured.scores["hidden_fraction"] == pytest.approx(2 / 3)


async def test_partial_credit_stays_below_a_solution(backend: SandboxBackend) -> None:
    judge = HiddenTests(vault=Vault({TASK.id: HIDDEN}), backend=backend, partial=0.2)
    assert (await judge.grade(TASK, HIDDEN.reference)).reward == 1.0
    half = await judge.grade(TASK, "def total(numbers):\n    return int(sum(numbers))\n")
    assert half.reward == pytest.approx(0.2 * 2 / 3)
    assert half.scores["hidden_passed"] == 0.0
    assert (await judge.grade(TASK, None)).reward == 0.0
    with pytest.raises(ValueError, match=r"partial must be in \[0, 1\), got 1"):
        HiddenTests(vault=Vault({}), backend=backend, partial=1.0)


async def test_no_solution_is_measured_and_worth_nothing(backend: SandboxBackend) -> None:
    assert (await grader(backend).grade(TASK, None)).reward == 0.0


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_measured_and_not_paid(name: str, backend: SandboxBackend) -> None:
    """I5. Each is a plain failure: never paid, and never an excuse that leaves the attempt unmeasured."""
    measured = await grader(backend).grade(TASK, ATTACKS[name])
    assert measured.reward == 0.0


async def test_the_next_grading_is_not_affected_by_an_attack(backend: SandboxBackend) -> None:
    await grader(backend).grade(TASK, ATTACKS["fork_and_leave"])
    assert (await grader(backend).grade(TASK, HIDDEN.reference)).reward == 1.0


async def test_a_test_program_judges_from_another_process(backend: SandboxBackend) -> None:
    judge = grader(backend)
    assert (await judge.grade(CHECKED, CHECK.reference)).reward == 1.0
    assert (await judge.grade(CHECKED, "def grow(x):\n    return [x, x]\n")).reward == 0.0
    liar = EQUAL_TO_ALL + "def grow(x):\n    return Any()\n"
    assert (await judge.grade(CHECKED, liar)).reward == 0.0


async def test_an_accepted_answer_that_leads_elsewhere_is_asked_on(backend: SandboxBackend) -> None:
    """A valid answer may differ from the reference's; the test's next question then differs too."""
    task = Task(id="he/2", family="he", instruction="...", entry_point="pick")
    hidden = Hidden(
        task_id="he/2",
        reference="def pick(xs):\n    return xs[0]\n",
        check="def check(candidate):\n    first = candidate([1, 2])\n    assert first in (1, 2)\n"
        "    assert candidate([first]) == first\n",
    )
    judge = HiddenTests(vault=Vault({task.id: hidden}), backend=backend)
    assert (await judge.grade(task, "def pick(xs):\n    return xs[-1]\n")).reward == 1.0
    assert (await judge.grade(task, "def pick(xs):\n    return len(xs)\n")).reward == 0.0, "pick([2]) is 2, not 1"


async def test_a_broken_test_program_is_a_grader_error_and_no_verdict(backend: SandboxBackend) -> None:
    """I1: it says nothing about the solution."""
    broken = Hidden(task_id="he/1", reference=CHECK.reference, check="def check(candidate):\n    1 / 0\n")
    judge = HiddenTests(vault=Vault({"he/1": broken}), backend=backend)
    with pytest.raises(GraderError, match="record he/1: the test program gave no verdict") as caught:
        await judge.grade(CHECKED, CHECK.reference)
    assert "ZeroDivisionError" in caught.value.evidence


async def test_a_task_without_hidden_tests_cannot_be_graded(backend: SandboxBackend) -> None:
    tasks = make_task_set(1)
    with pytest.raises(GraderError, match="KeyError"):
        await HiddenTests(vault=Vault({}), backend=backend).grade(tasks.tasks[0], "x = 1")


async def test_a_dead_sandbox_host_is_a_sandbox_error(backend: SandboxBackend) -> None:
    await backend.close()
    with pytest.raises(SandboxError):
        await grader(backend).grade(TASK, HIDDEN.reference)
