"""Turns the declared families into tasks and hidden material, with expected values computed by the references."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from burnish.tasks.answering import answer, define
from burnish.tasks.family import Family, TaskSpec
from burnish.types import Case, Hidden, Task

DRAWS_PER_CASE = 4  # a small input space gives repeats; so many tries until the task has fewer random cases


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltTask:
    """A task, its hidden material and the side of the split it is on.

    Example: BuiltTask(task=task, hidden=Hidden(task_id=task.id, reference="..."), heldout=False)
    """

    task: Task
    hidden: Hidden
    heldout: bool


@cache
def build_families(families: tuple[Family, ...]) -> tuple[BuiltTask, ...]:
    """Builds all tasks in declared order; a second call with the same families costs nothing.

    Raises what a reference raises, and ValueError for one that answers with something other than plain data.
    """
    return tuple(_build(family, spec) for family in families for spec in family.tasks)


def _build(family: Family, spec: TaskSpec) -> BuiltTask:
    task_id = f"{family.name}/{spec.name}"
    hidden_exprs = [*dict.fromkeys(spec.hidden), *_random_exprs(task_id, spec)]
    scope = define(spec.reference, spec.name)
    task = Task(
        id=task_id,
        family=family.name,
        instruction=spec.instruction,
        entry_point=spec.name,
        band=spec.band,
        examples=tuple(Case(expr=expr, expected=answer(scope, expr)) for expr in spec.examples),
    )
    cases = tuple(Case(expr=expr, expected=answer(scope, expr)) for expr in hidden_exprs)
    hidden = Hidden(task_id=task_id, reference=spec.reference, cases=cases)
    return BuiltTask(task=task, hidden=hidden, heldout=family.heldout)


def _random_exprs(task_id: str, spec: TaskSpec) -> Iterator[str]:
    """Up to `num_random` expressions that the task does not hold yet, the same in every process."""
    if spec.random_inputs is None:
        return
    rng = Random(task_id)
    seen = {*spec.examples, *spec.hidden}
    num_left = spec.num_random
    for _ in range(DRAWS_PER_CASE * spec.num_random):
        expr = spec.random_inputs(rng)
        if num_left and expr not in seen:
            seen.add(expr)
            num_left -= 1
            yield expr
