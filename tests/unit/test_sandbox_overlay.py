"""How a stack of layers becomes one mount."""

import os

import pytest

from burnish.sandbox.process import overlay


def test_the_upper_directory_comes_before_the_layers() -> None:
    text = overlay.options(("1", "2"), "", rootless=True)
    assert text.endswith(",userxattr,lowerdir=2/root:1/root:/lower") and text.startswith("upperdir=/upper/root,")
    assert overlay.options((), "images/6f/rootfs", rootless=False).endswith(",lowerdir=/images/images/6f/rootfs:/bare")


def test_what_the_kernel_would_cut_is_refused() -> None:
    page = os.sysconf("SC_PAGESIZE")
    fits = [str(1000 + number) for number in range(300)]
    assert len(overlay.options(fits, "", rootless=True)) < page
    for stack in (["1"] * 501, ["9" * 20] * (page // 20), [*fits, "9" * page]):
        with pytest.raises(overlay.TooManyLayersError, match=f"^{len(stack)} layers are more"):
            overlay.options(stack, "", rootless=False)
