"""Where images lie, for those who need no more of them."""

import os
from pathlib import Path


def default_store_dir() -> Path:
    """`images` in $BURNISH_CACHE, or in $XDG_CACHE_HOME/burnish, or in ~/.cache/burnish."""
    if own := os.environ.get("BURNISH_CACHE"):
        return Path(own).expanduser() / "images"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "burnish" / "images"
