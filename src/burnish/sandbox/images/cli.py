"""`burnish image`: the verbs over an image store."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from burnish.sandbox import images

if TYPE_CHECKING:
    from burnish.sandbox.images.image import Image

image_app = typer.Typer(no_args_is_help=True, help="Keep root file systems for sandboxes.")

_Store = Annotated[Path | None, typer.Option(help="The store's folder. Default: images in the cache folder.")]
_Ref = Annotated[str, typer.Argument(help="A name, or a digest or its beginning.", metavar="IMAGE")]
_Name = Annotated[str | None, typer.Option(help="What to call it. Default: what the source calls it.")]


@image_app.command("list")
def list_images(store: _Store = None) -> None:
    """List the images, one a line: name, digest, megabytes."""
    for image in images.ImageStore(store).list():
        typer.echo(f"{image.name:<48} {_short(image.digest)} {image.size_bytes / 1e6:>9.1f} MB")


@image_app.command("import")
def import_image(
    source: Annotated[
        str, typer.Argument(help="A directory, tar, OCI layout or docker-archive; SOURCE#NAME picks one of several.")
    ],
    name: _Name = None,
    store: _Store = None,
) -> None:
    """Unpack an image from this machine's disk into the store."""
    _say(images.ImageStore(store).import_image(source, name))


@image_app.command()
def pull(
    reference: Annotated[str, typer.Argument(help="e.g. docker.io/library/python:3.12-slim, ghcr.io/x/y@sha256:...")],
    name: _Name = None,
    timeout_s: Annotated[float, typer.Option(min=1.0, help="Seconds for the whole download.")] = 1800.0,
    store: _Store = None,
) -> None:
    """Fetch an image from a registry into the store, every part checked against its digest."""
    with_progress = _progress if sys.stderr.isatty() else _silent
    _say(images.pull_image(images.ImageStore(store), reference, name=name, timeout_s=timeout_s, progress=with_progress))


@image_app.command()
def inspect(ref: _Ref, store: _Store = None) -> None:
    """Show everything about an image as JSON."""
    typer.echo(json.dumps(asdict(images.ImageStore(store).get(ref)), indent=2, default=str, sort_keys=True))


@image_app.command()
def remove(ref: _Ref, store: _Store = None) -> None:
    """Remove a name, and the image with its last one; by digest, the image with all its names."""
    images.ImageStore(store).remove(ref)


def _say(image: "Image") -> None:
    left_out = "".join(f", {count} {kind} left out" for kind, count in image.skipped.items())
    typer.echo(f"{image.name} {_short(image.digest)}: {image.num_entries} entries, {image.size_bytes} bytes{left_out}")


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\r{done / 1e6:.1f} of {total / 1e6:.1f} MB", end=end, file=sys.stderr, flush=True)


def _silent(done: int, total: int) -> None:
    """Nobody watches."""
