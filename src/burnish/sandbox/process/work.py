"""Which jobs there are: what a request of the owner becomes before the host forks (see jobs.py)."""

import os
from collections.abc import Callable

from burnish.sandbox.process.layers import Layers, copy_into
from burnish.sandbox.process.wire import Message


def prepare(layers: Layers, message: Message, descriptor: int) -> Callable[[], None]:
    """The work that a request asks for. The layer that it fills is there from now on. Raises OSError."""
    assert message["kind"] == "copy"
    layer, size = message["layer"], os.fstatvfs(descriptor)
    # a file with several names has one more while it is copied
    layers.make(layer, message["family"], size.f_blocks * size.f_frsize, 2 * size.f_files)
    return lambda: copy_into(layer, descriptor)
