"""The mount that a sandbox's files are: one private directory over a stack of layers. Shared by owner and host."""

import os
from collections.abc import Sequence

_MAX_LAYERS = 500  # below the private one; the kernel's limit
_MAX_OPTIONS_BYTES = os.sysconf("SC_PAGESIZE") - 1  # what is longer is cut without a word


class TooManyLayersError(Exception):
    """No sandbox can be mounted over so many."""


def options(stack: Sequence[str], image: str, *, rootless: bool) -> str:
    """The options of mount(2), for a process whose working directory is /layers. Raises TooManyLayersError.

    Args:
        stack: names of layers, lowest first.
        image: a root directory below /images; empty for the machine's own programs.
        rootless: overlay's marks are attributes of the user's own.
    """
    base = [f"/images/{image}", "/bare"] if image else ["/lower"]
    lowers = [*(f"{layer}/root" for layer in reversed(stack)), *base]
    # What a distribution turns on by default would leave marks in layers that are read elsewhere. What must not be
    # lost if they are cut comes first.
    text = "upperdir=/upper/root,workdir=/upper/work,volatile,index=off,metacopy=off,redirect_dir=nofollow"
    text += f"{',userxattr' if rootless else ''},lowerdir={':'.join(lowers)}"
    if len(lowers) > _MAX_LAYERS or len(os.fsencode(text)) > _MAX_OPTIONS_BYTES:
        raise TooManyLayersError(f"{len(stack)} layers are more than can be mounted")
    return text
