"""Lays one layer over the tree: its entries, and what it says to hide of the layers below.

Whiteouts are files with reserved names (OCI image specification, "Representing changes"). They hide what earlier layers
have and never what their own layer brings, wherever in the layer they stand.
"""

from collections.abc import Iterable

from burnish.errors import UserError
from burnish.sandbox.images.entries import Entry
from burnish.sandbox.images.tree import Tree

_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_AUFS = b".wh..wh."  # that file system's own notes, which old builders packed along


def lay(entries: Iterable[Entry], tree: Tree, *, whiteouts: bool) -> None:
    """Writes `entries` into `tree`. Without `whiteouts` the reserved names are names like others.

    Raises UserError for a layer that asks for what cannot be.
    """
    tree.start_layer()
    for entry in entries:
        marks = [part for part in entry.path if part.startswith(_WHITEOUT)] if whiteouts else []
        if not marks:
            tree.add(entry)
        elif entry.path[-1] == _OPAQUE and len(marks) == 1:
            tree.opaque(entry.path[:-1])
        elif any(mark.startswith(_AUFS) for mark in marks):
            continue
        elif len(marks) == 1 and entry.path[-1] == marks[0] and marks[0][4:] not in (b"", b".", b".."):
            tree.whiteout((*entry.path[:-1], marks[0][4:]))
        else:
            raise UserError("a whiteout of nothing", where=f"entry {entry.label}", fix="do not trust this image")
