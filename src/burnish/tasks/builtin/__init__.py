"""The built-in tasks: every module listed here declares some families; together they are `FAMILIES`."""

from burnish.tasks.builtin import (
    bugfix,
    classes,
    clock,
    dicts,
    geometry,
    grids,
    lists,
    lists_more,
    logic,
    numbers,
    numbers_more,
    parsing,
    recursion,
    strings,
    strings_more,
    tuples_sets,
    units,
)
from burnish.tasks.family import Family

MODULES = (
    strings, strings_more, numbers, numbers_more, lists, lists_more, tuples_sets, dicts, grids, parsing, recursion,
    logic, geometry, units, clock, classes, bugfix,
)  # fmt: skip

FAMILIES: tuple[Family, ...] = tuple(family for module in MODULES for family in module.FAMILIES)
