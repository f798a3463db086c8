"""The files of a sandbox as a tar, made inside a copy of it, so that nothing outside reads its tree."""

import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from burnish.errors import UserError
from burnish.sandbox.base import SandboxBackend, SandboxBox

PART_BYTES = 4 << 20
_EXPORT_S, _PART_S = 60.0, 30.0
_ROOM_BYTES = 16 << 20


@contextlib.asynccontextmanager
async def exported(backend: SandboxBackend, box: SandboxBox) -> AsyncIterator[tuple[int, AsyncGenerator[bytes, None]]]:
    """The size of a tar of /home/agent as it is now, and its parts, of a few megabytes each.

    It lies in a copy with a disk limit of its own, so a sandbox whose disk is full can be saved too. What it holds is
    the candidate's: unpack it with care. Raises UserError when it cannot be made.
    """
    place = f"/tmp/export-{secrets.token_hex(8)}.tar"  # noqa: S108 (of the copy; nobody inside could guess it)
    # the files and the tar of them, which takes more than they do when they are small
    disk_bytes = 3 * box.limits.disk_bytes + _ROOM_BYTES
    limits = replace(box.limits, disk_bytes=disk_bytes, output_bytes=PART_BYTES)
    async with await box.snapshot() as snapshot, await backend.create(limits=limits, snapshot=snapshot) as copy:
        made = await copy.commands.run(["tar", "-C", "/home/agent", "-cf", place, "."], cwd="/", timeout_s=_EXPORT_S)
        if not made.ok:
            why = made.limit_hit or made.stderr[-200:].decode(errors="replace").strip()
            raise UserError(f"no tar of its files could be made: {why}", where=box.id)
        told = (await copy.commands.run(["stat", "-c", "%s", place], cwd="/")).stdout.strip()
        size = int(told) if told.isdigit() and len(told) < 20 else disk_bytes + 1
        if size > disk_bytes:
            raise UserError("its tar has no size that can be", where=box.id)
        async with contextlib.aclosing(_parts(copy, place, size)) as parts:
            yield size, parts


async def _parts(box: SandboxBox, place: str, size: int) -> AsyncGenerator[bytes, None]:
    for number in range(-(-size // PART_BYTES)):
        dd = ["dd", f"if={place}", f"bs={PART_BYTES}", f"skip={number}", "count=1", "status=none"]
        part = (await box.commands.run(dd, cwd="/", timeout_s=_PART_S)).stdout
        if len(part) != min(PART_BYTES, size - number * PART_BYTES):
            raise UserError("its tar could not be read", where=box.id)
        yield part
