"""I10: imports go one way. The table below is section "Layers" of ARCHITECTURE.md, as code."""

from tests.guards.source import Module, imports_of, modules_under, package_imports, package_modules

# The longest prefix of a module's name says its part. A part may import lower layers and itself, never a sibling.
LAYERS = {
    "burnish": 0,
    "burnish.types": 0,
    "burnish.errors": 0,
    "burnish.config": 0,
    "burnish.ipc": 0,
    "burnish.files": 0,
    "burnish.hardware": 0,
    "burnish.store": 0,
    "burnish.observe.emit": 0,
    "burnish.sandbox": 1,
    "burnish.engine.base": 1,
    "burnish.rollout.render": 1,
    "burnish.tasks": 2,
    "burnish.reward": 2,
    "burnish.rollout": 2,
    "burnish.engine": 3,
    "burnish.flow": 3,
    "burnish.learn": 3,
    "burnish.weights": 3,
    "burnish.data": 3,
    "burnish.observe": 3,
    "burnish.parts": 4,
    "burnish.cluster": 4,
    "burnish.testing": 4,
    "burnish.evaluate": 5,
    "burnish.train": 6,  # it evaluates before and after
    "burnish.cli": 7,
    "burnish.__main__": 8,
}
# Modules of one part that stand beside each other at the top level.
SAME_PART = {
    "burnish.chaos": "burnish.cli",
    "burnish.run_cli": "burnish.cli",
    "burnish.config_yaml": "burnish.config",
    "burnish.config_reference": "burnish.config",
    "burnish.config_load": "burnish.config",
    "burnish.attempts": "burnish.parts",
    "burnish.bookkeeping": "burnish.train",
    "burnish.conductor": "burnish.train",
    "burnish.run_dir": "burnish.train",
    "burnish.watch": "burnish.train",
    "burnish.step_report": "burnish.train",
}
FOUNDATION_ONLY = ("burnish.flow", "burnish.observe")  # what they need from others, they are given as callables
HEAVY = {"torch", "transformers", "safetensors", "gguf"}
HEAVY_ALLOWED = ("burnish.learn", "burnish.weights", "burnish.engine.local")
COMMAND_LINE = ("burnish.cli", "burnish.run_cli", "burnish.sandbox.cli")
HIDDEN_ALLOWED = ("burnish.reward.", "burnish.evaluate.certify", "burnish.types")


def part_of(name: str) -> str:
    name = SAME_PART.get(name, name)
    while name not in LAYERS:
        name, _, cut = name.rpartition(".")
        assert name, f"{cut} belongs to no part"
    return name


def test_every_top_level_module_has_a_layer() -> None:
    homeless = [name for name in package_modules() if name.count(".") == 1 and part_of(name) == "burnish"]
    assert not homeless, "add to LAYERS or SAME_PART: " + ", ".join(homeless)


def test_imports_go_down_the_layers() -> None:
    wrong = []
    for module in package_modules().values():
        mine = part_of(module.name)
        for found in package_imports(module):
            theirs = part_of(found.target)
            # Layer 0 is one foundation: its modules may use each other, and the cycle test keeps them in order.
            if theirs != mine and LAYERS[theirs] != 0 and LAYERS[theirs] >= LAYERS[mine]:
                wrong.append(f"{module.label}:{found.line}: {mine} must not import {found.target}")
    assert not wrong, "\n".join(wrong)


def test_flow_and_observe_know_only_the_foundation() -> None:
    wrong = [
        f"{module.label}:{found.line}: {found.target}"
        for module in package_modules().values()
        for found in package_imports(module)
        if (mine := part_of(module.name)) in FOUNDATION_ONLY
        and part_of(found.target) != mine
        and LAYERS[part_of(found.target)] != 0
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_cycles() -> None:
    graph = {name: {found.target for found in package_imports(m)} for name, m in package_modules().items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' -> '.join([*path[path.index(name) :], name])}"
        if name not in done:
            for target in sorted(graph[name] - {name}):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_torch_stays_where_tensors_are() -> None:
    wrong = [
        f"{module.label}:{found.line}: {found.target}"
        for module in package_modules().values()
        for found in imports_of(module)
        if found.target.split(".")[0] in HEAVY and not _below(module.name, HEAVY_ALLOWED)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_inside_a_function_outside_the_command_line() -> None:
    """A lazy import hides a cycle. Only the heavy libraries, where they are allowed at all, may wait for their use."""
    wrong = [
        f"{module.label}:{found.line}: {found.target}"
        for module in package_modules().values()
        for found in imports_of(module)
        if found.inside_function and module.name not in COMMAND_LINE and found.target.split(".")[0] not in HEAVY
    ]
    assert not wrong, "\n".join(wrong)


def test_hidden_material_is_opened_by_graders_only() -> None:
    """I5: nobody else can show the policy what it is scored by."""
    callers = [m for m in modules_under("src", "bench") if "open_hidden" in m.text]
    wrong = [m.label for m in callers if not m.name.startswith(HIDDEN_ALLOWED)]
    assert callers and not wrong, "\n".join(wrong)


def test_the_guard_sees_a_violation() -> None:
    """The table is worth nothing if the parser is blind."""
    module: Module = package_modules()["burnish.cli"]
    targets = {found.target: found.inside_function for found in imports_of(module)}
    assert targets["burnish.errors"] is False
    assert targets["burnish.config_load"] is True


def _below(name: str, parts: tuple[str, ...]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)
