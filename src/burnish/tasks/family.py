"""How a built-in family of tasks is written down.

A family is one idea ("count the items that pass a test") with several tasks. Each is declared by a function's source
and inputs only: expected values are computed by running the reference once, so that a stated answer can never disagree
with it. `random_inputs` adds property-style hidden cases, drawn from a generator seeded by the task id.

`easy`, `medium` and `hard` write a task about one function in a few lines; a task about a class, or with given code,
is a `TaskSpec` written in full.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from burnish.types import Band

Draw = Callable[[Random], object]
"""Makes one random argument; `burnish.tasks.builtin.inputs` has the usual ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """One built-in task.

    Example: TaskSpec(name="count_even", band="easy",
        instruction="Write a Python function `count_even(numbers)` that returns how many of the numbers are even.",
        reference="def count_even(numbers):\\n    return sum(1 for n in numbers if n % 2 == 0)\\n",
        examples=("count_even([1, 2, 4])", "count_even([])"),
        hidden=("count_even([0, -2, 3])",),
        random_inputs=lambda rng: f"count_even({[rng.randint(-9, 9) for _ in range(rng.randint(0, 8))]})")
    """

    name: str  # the entry point: the function or class that a solution must define; unique in the whole set
    band: Band
    instruction: str
    reference: str
    examples: tuple[str, ...]  # visible expressions, 2 or 3
    hidden: tuple[str, ...]  # hand-written hidden expressions: edge cases first
    random_inputs: Callable[[Random], str] | None = None  # one more hidden expression per draw
    num_random: int = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A named idea and its tasks.

    Example: Family(name="count_matching", tasks=(spec,), heldout=False)
    """

    name: str
    tasks: tuple[TaskSpec, ...] = field(default_factory=tuple)
    heldout: bool = False


def function_task(
    band: Band,
    signature: str,
    does: str,
    body: str,
    *,
    examples: tuple[str, ...],
    hidden: tuple[str, ...],
    draw: tuple[Draw, ...] = (),
    num_random: int = 6,
) -> TaskSpec:
    """A task about one function, with its calls written as argument lists.

    `does` completes the sentence "Write a Python function `signature` that ..."; `body` is the reference without its
    `def` line. `draw` holds one generator per argument; without it there are no random cases.

    Example: function_task("easy", "double(n)", "returns n times two", "return n * 2",
        examples=("3", "-1"), hidden=("0", "10", "-7", "21"), draw=(whole(-50, 50),))
    """
    name = signature.partition("(")[0]

    def call(arguments: str) -> str:
        return f"{name}({arguments})"

    def random_call(rng: Random) -> str:
        return call(", ".join(repr(make(rng)) for make in draw))

    return TaskSpec(
        name=name,
        band=band,
        instruction=f"Write a Python function `{signature}` that {does}.",
        reference=f"def {signature}:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n",
        examples=tuple(map(call, examples)),
        hidden=tuple(map(call, hidden)),
        random_inputs=random_call if draw else None,
        num_random=num_random,
    )


easy = partial(function_task, "easy")
medium = partial(function_task, "medium")
hard = partial(function_task, "hard")
