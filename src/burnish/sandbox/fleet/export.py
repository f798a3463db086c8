"""The files of a sandbox as a tar, made inside a copy of it, so that nothing outside reads its tree."""

import secrets

from burnish.errors import UserError
from burnish.sandbox.base import SandboxBox

MAX_EXPORT_BYTES = 64 << 20
_EXPORT_S = 60.0


async def export_files(box: SandboxBox) -> bytes:
    """A tar of /home/agent as it is now. The tar lies in the copy for a moment and counts against its disk limit.

    What it holds is the candidate's: unpack it with care. Raises UserError when it cannot be made within
    `MAX_EXPORT_BYTES` and the sandbox's limits, and what `SandboxBox.fork` raises.
    """
    place = f"/tmp/export-{secrets.token_hex(8)}.tar"  # noqa: S108 (of the copy; nobody inside could guess it)
    (copy,) = await box.fork()
    async with copy:
        made = await copy.commands.run(["tar", "-C", "/home/agent", "-cf", place, "."], cwd="/", timeout_s=_EXPORT_S)
        if not made.ok:
            why = made.limit_hit or made.stderr[-200:].decode(errors="replace").strip()
            raise UserError(f"no tar of its files could be made: {why}", where=box.id)
        if await _is_larger(copy, place):
            raise UserError(f"its files are more than {MAX_EXPORT_BYTES >> 20} MiB", where=box.id)
        return await copy.files.read(place, max_bytes=MAX_EXPORT_BYTES)


async def _is_larger(box: SandboxBox, path: str) -> bool:
    found = await box.commands.run(["find", path, "-size", f"+{MAX_EXPORT_BYTES}c"], cwd="/")
    return bool(found.stdout)
