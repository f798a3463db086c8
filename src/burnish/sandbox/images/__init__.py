"""Root file systems for sandboxes: imported, flattened, kept under a name and a content digest.

    image = ImageStore().import_image("rootfs.tar.zst", name="python:3.12")
    image = pull_image(ImageStore(), "docker.io/library/python:3.12-slim")

The names are looked up on first use, so that `burnish --help` does not load an HTTP client.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.sandbox.images.image import Image, ImageConfig, ImageLimits
    from burnish.sandbox.images.pull import pull_image
    from burnish.sandbox.images.store import ImageStore

_HOME_OF = {
    "Image": "image", "ImageConfig": "image", "ImageLimits": "image", "ImageStore": "store", "pull_image": "pull",
}  # fmt: skip

__all__ = ["Image", "ImageConfig", "ImageLimits", "ImageStore", "pull_image"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
