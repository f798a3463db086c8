"""A registry's image into a store: its blobs are laid out as an OCI layout in a draft, and that is imported."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnish.errors import SandboxError, UserError, first_cause
from burnish.sandbox.images import manifest as mf
from burnish.sandbox.images.image import Image, ImageLimits
from burnish.sandbox.images.reference import Reference, parse_reference
from burnish.sandbox.images.registry import Registry
from burnish.sandbox.images.store import ImageStore

TIMEOUT_S = 1800.0
_AT_ONCE = 3  # downloads; what registries are used to
Progress = Callable[[int, int], None]


def pull_image(
    store: ImageStore,
    reference: str,
    *,
    name: str | None = None,
    limits: ImageLimits = ImageLimits(),
    timeout_s: float = TIMEOUT_S,
    progress: Progress = lambda done, total: None,
) -> Image:
    """Fetches an image of this machine's kind from a registry. Call it from a thread where an event loop runs.

    Args:
        store: where it is kept.
        reference: `docker.io/library/python:3.12-slim`, `ghcr.io/x/y@sha256:...`. Docker Hub needs no host. A registry
            on this machine is spoken to without TLS.
        name: what to call it; None takes the reference.
        limits: `max_bytes` also bounds the download.
        timeout_s: for the whole download.
        progress: is told of bytes so far and in all.

    Raises:
        UserError: no such image, access denied, not for this machine, no container image, too large, disk full.
        SandboxError: the registry cannot be reached, fails, sends what its digest denies, or takes too long.
    """
    wanted = parse_reference(reference)

    def fetch(draft: Path) -> tuple[Path, None]:
        layout = draft / "layout"
        try:
            asyncio.run(_within(_download(wanted, layout, limits, progress), timeout_s))
        except TimeoutError as problem:
            raise SandboxError(f"pull {wanted.name}: not finished after {timeout_s:g} s") from problem
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        return layout, None

    return store.make(fetch, name=name or wanted.name, source=reference, limits=limits)


async def _within(work: Any, timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        await work


async def _download(wanted: Reference, layout: Path, limits: ImageLimits, progress: Progress) -> None:
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    async with Registry(wanted) as registry:
        manifest, descriptor = await _manifest(registry, wanted, blobs)
        config, layers = mf.layers_of(manifest, wanted.name)
        if len(layers) > limits.max_layers:
            raise UserError(
                f"{len(layers)} layers", where="ImageLimits.max_layers", fix="raise the limit if you trust it"
            )
        needed = {mf.digest_of(one, wanted.name): mf.size_of(one, wanted.name) for one in (config, *layers)}
        total, done, at_once = sum(needed.values()), 0, asyncio.Semaphore(_AT_ONCE)
        if total > limits.max_bytes or mf.size_of(config, wanted.name) > mf.MAX_JSON_BYTES:
            raise UserError(
                f"{total} bytes to fetch", where="ImageLimits.max_bytes", fix="raise the limit if you trust it"
            )

        def tell(num: int) -> None:
            nonlocal done
            done += num
            progress(done, total)

        async def one(digest: str, size: int) -> None:
            async with at_once:
                await registry.blob(digest, size, blobs / digest.removeprefix("sha256:"), tell)

        async with asyncio.TaskGroup() as group:
            for digest, size in needed.items():
                group.create_task(one(digest, size))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))


async def _manifest(registry: Registry, wanted: Reference, blobs: Path) -> tuple[Any, Any]:
    """The manifest for this machine, down through indexes, and a descriptor of it; it is written to `blobs`."""
    target = wanted.digest or wanted.tag or ""
    for _ in range(mf.MAX_NESTING):
        data, digest = await registry.manifest(target)
        document = mf.parse_json(data, wanted.name)
        if not mf.is_index(document):
            (blobs / digest.removeprefix("sha256:")).write_bytes(data)
            return document, {"mediaType": mf.MANIFEST_TYPES[0], "digest": digest, "size": len(data)}
        target = mf.digest_of(mf.ours_first(document, wanted.name)[0], wanted.name)
    raise UserError("too many indexes in one another", where=wanted.name, fix="choose another image")
