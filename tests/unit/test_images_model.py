"""The flattened tree against a model in memory, over random layers full of links, whiteouts and quarrels."""

import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from burnish.errors import UserError
from tests.image_sources import flatten, member, tar_bytes

Step = tuple[str, str, str, int]  # kind, path, content or link, number for mode and time


@dataclass(eq=False)
class Node:
    kind: str
    content: str = ""
    mode: int = 0o755
    mtime: int = 0
    slots: "dict[str, Slot]" = field(default_factory=dict)


@dataclass
class Slot:
    """A name in a folder: which layer wrote it, and whether by an entry of its own."""

    node: Node
    layer: int
    is_named: bool


class Refused(Exception):
    pass


class Model:
    """What the specification says, in dictionaries."""

    def __init__(self) -> None:
        self.root = Node("dir")

    def apply(self, step: Step, layer: int) -> None:
        kind, path, content, number = step
        parts = path.split("/")
        if kind in ("whiteout", "opaque"):
            trail = self.resolve(parts if kind == "opaque" else parts[:-1], None)
            if trail is not None:
                for name in list(trail[-1].slots) if kind == "opaque" else parts[-1:]:
                    self.hide(trail[-1], name, layer)
            return
        trail = self.resolve(parts[:-1], layer)
        assert trail is not None
        folder, name = trail[-1], parts[-1]
        old = folder.slots.get(name)
        if kind == "hardlink":
            folder.slots[name] = Slot(self.link(folder, name, content.split("/")), layer, True)
        elif kind == "dir" and old is not None and old.node.kind == "dir":
            old.node.mode, old.node.mtime = mode_of(number, "dir"), number
            folder.slots[name] = Slot(old.node, layer, True)
        else:
            folder.slots[name] = Slot(Node(kind, content, mode_of(number, kind), number), layer, True)

    def link(self, folder: Node, name: str, aim: list[str]) -> Node:
        trail = self.resolve(aim[:-1], None)
        slot = trail[-1].slots.get(aim[-1]) if trail is not None else None
        if slot is None or trail is None:
            raise Refused
        if trail[-1] is folder and aim[-1] == name:
            return slot.node
        folder.slots.pop(name, None)  # and the target may have been in there
        if slot.node.kind == "dir" or trail[-1] not in self.folders(self.root):
            raise Refused
        return slot.node

    def folders(self, folder: Node) -> list[Node]:
        inner = [slot.node for slot in folder.slots.values() if slot.node.kind == "dir"]
        return [folder, *(deep for one in inner for deep in self.folders(one))]

    def resolve(self, parts: list[str], layer: int | None) -> list[Node] | None:
        """The folders down to a path; made by a layer where one is given."""
        todo, trail, names, num_links = list(parts), [self.root], [""], 0
        while todo:
            part = todo.pop(0)
            slot = trail[-1].slots.get(part)
            if part == "..":
                trail, names = trail[:-1] or [self.root], names[:-1] or [""]
            elif slot is not None and slot.node.kind == "symlink":
                num_links += 1
                if num_links > 40:
                    raise Refused
                if slot.node.content.startswith("/"):
                    trail, names = [self.root], [""]
                todo = [p for p in slot.node.content.split("/") if p not in ("", ".")] + todo
            elif slot is not None and slot.node.kind == "dir":
                trail, names = [*trail, slot.node], [*names, part]
            elif layer is None:
                return None
            else:
                made = Node("dir")
                trail[-1].slots[part] = Slot(made, layer, False)
                trail, names = [*trail, made], [*names, part]
        if layer is not None:
            for above, name in zip(trail, names[1:], strict=False):
                if above.slots[name].layer != layer:
                    above.slots[name].layer, above.slots[name].is_named = layer, False
        return trail

    def hide(self, folder: Node, name: str, layer: int) -> None:
        slot = folder.slots.get(name)
        if slot is None:
            return
        if slot.layer != layer:
            del folder.slots[name]
        elif slot.node.kind == "dir":
            if not slot.is_named:
                slot.node.mode, slot.node.mtime = 0o755, 0
            for child in list(slot.node.slots):
                self.hide(slot.node, child, layer)

    def listing(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.list_into(found, {}, self.root, "")
        return found

    def list_into(self, found: dict[str, Any], first: dict[Node, str], folder: Node, at: str) -> None:
        for name in sorted(folder.slots):
            node, path = folder.slots[name].node, f"{at}{name}"
            if node.kind == "symlink":
                found[path] = ("symlink", node.content, node.mtime, first.setdefault(node, path))
            elif node.kind == "dir":
                found[path] = ("dir", node.mode, node.mtime)
                self.list_into(found, first, node, f"{path}/")
            else:
                found[path] = (node.kind, node.content, node.mode, node.mtime, first.setdefault(node, path))


def mode_of(number: int, kind: str) -> int:
    return 0o700 + number % 64 if kind == "dir" else 0o600 + number % 64


def as_tar(layer: list[Step]) -> bytes:
    members = []
    for kind, path, content, number in layer:
        folder, _, name = path.rpartition("/")
        if kind == "whiteout":
            members.append(member(f"{folder}/.wh.{name}"))
        elif kind == "opaque":
            members.append(member(f"{path}/.wh..wh..opq"))
        else:
            data = content.encode() if kind == "file" else b""
            link = content if kind in ("symlink", "hardlink") else ""
            members.append(member(path, data, kind=kind, link=link, mode=mode_of(number, kind), mtime=number))
    return tar_bytes(*members)


def on_disk(root: Path, at: str = "", first: dict[int, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    first = {} if first is None else first
    for name in sorted(entry.name for entry in (root / at).iterdir()):
        path = f"{at}{name}"
        status = (root / path).lstat()
        mode, mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
        if stat.S_ISLNK(status.st_mode):
            found[path] = ("symlink", str((root / path).readlink()), mtime, first.setdefault(status.st_ino, path))
        elif stat.S_ISDIR(status.st_mode):
            found[path] = ("dir", mode, mtime)
            found |= on_disk(root, f"{path}/", first)
        else:
            kind = "fifo" if stat.S_ISFIFO(status.st_mode) else "file"
            content = (root / path).read_text() if kind == "file" else ""
            found[path] = (kind, content, mode, mtime, first.setdefault(status.st_ino, path))
    return found


names = st.sampled_from("abc")
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
targets = st.one_of(paths, paths.map("/{}".format), paths.map("../{}".format), paths.map("../../../{}".format))
numbers = st.integers(1, 500)
steps = st.one_of(
    st.tuples(st.just("dir"), paths, st.just(""), numbers),
    st.tuples(st.just("file"), paths, st.text("xyz", max_size=3), numbers),
    st.tuples(st.just("symlink"), paths, targets, numbers),
    st.tuples(st.just("hardlink"), paths, paths, numbers),
    st.tuples(st.just("fifo"), paths, st.just(""), numbers),
    st.tuples(st.sampled_from(["whiteout", "opaque"]), paths, st.just(""), numbers),
)
layers = st.lists(st.lists(steps, max_size=8), min_size=1, max_size=4)


@given(layers)
@settings(max_examples=300)
@example([[("file", "a/b", "x", 1)], [("opaque", "a", "", 1), ("file", "a/c", "y", 2)]])
@example([[("dir", "a", "", 7), ("file", "a/b", "x", 1)], [("file", "a/c", "y", 2), ("whiteout", "a", "", 1)]])
@example([[("symlink", "a", "/b", 1), ("file", "a/c", "x", 1)], [("whiteout", "a/c", "", 1)]])
@example([[("file", "a/b", "x", 1)], [("hardlink", "a", "a/b", 1)]])
@example([[("symlink", "a/b", "/c", 1), ("dir", "a/b/d", "", 9), ("whiteout", "c/d", "", 1)]])
@example([[("symlink", "l", "p/n/..", 1), ("dir", "p/n", "", 1), ("file", "l/n", "x", 1), ("file", "l/y", "x", 1)]])
@example([[("symlink", "p/n", ".", 1), ("symlink", "l", "p/n", 1), ("file", "l/n", "x", 1), ("file", "l/y", "x", 1)]])
def test_flattening_does_what_the_model_does(random_layers: list[list[Step]]) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        root, archives = Path(folder), [as_tar(layer) for layer in random_layers]
        try:
            for number, layer in enumerate(random_layers):
                for step in layer:
                    model.apply(step, number)
        except Refused:
            with pytest.raises(UserError):
                flatten(root, *archives)
            return
        flatten(root, *archives)
        assert on_disk(root) == model.listing()


plain_steps = st.one_of(
    st.tuples(st.just("dir"), paths, st.just(""), numbers),
    st.tuples(st.just("file"), paths, st.text("xyz", max_size=3), numbers),
)


@given(st.lists(plain_steps, max_size=8), st.sets(paths, max_size=3), st.sets(paths, max_size=3), st.randoms())
@settings(max_examples=150)
def test_where_a_whiteout_stands_in_its_layer_does_not_matter(
    lower: list[Step], hidden: set[str], opaque: set[str], random: Any
) -> None:
    fixed: list[Step] = [("dir", "a", "", 3), ("file", "a/b", "new", 4), ("file", "b/c/a", "new", 5)]
    marks: list[Step] = [*(("whiteout", path, "", 1) for path in hidden), *(("opaque", path, "", 1) for path in opaque)]
    shuffled = [*fixed, *marks]
    random.shuffle(shuffled)
    # A folder that is only passed through keeps the lower one's attributes unless that is hidden, in either order.
    seen = []
    for upper in ([*marks, *fixed], shuffled):
        with tempfile.TemporaryDirectory() as folder:
            flatten(Path(folder), as_tar(lower), as_tar(upper))
            seen.append(on_disk(Path(folder)))
    assert seen[0] == seen[1]


@given(layers, st.data())
@settings(max_examples=200)
def test_a_damaged_archive_is_refused_or_read_but_nothing_else(random_layers: list[list[Step]], data: Any) -> None:
    archive = bytearray(as_tar([step for layer in random_layers for step in layer]))
    for _ in range(data.draw(st.integers(0, 4))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(archive)))
    with tempfile.TemporaryDirectory() as outer:
        root = Path(outer, "root")
        root.mkdir()
        try:
            flatten(root, bytes(archive[:cut]))
        except UserError as refusal:
            assert "\n" not in refusal.cause
        assert [entry.name for entry in Path(outer).iterdir()] == ["root"]
