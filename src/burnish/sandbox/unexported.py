"""For backends that do not declare "snapshot.export"."""

from typing import Any, NoReturn

from burnish.errors import UserError


class NoExport:
    """Refuses."""

    async def export_snapshot(self, *_: Any, **__: Any) -> NoReturn:
        """Not declared. Raises UserError."""
        raise UserError("this backend exports no snapshots", where="sandbox", fix="use the `process` backend")

    async def import_snapshot(self, *_: Any, **__: Any) -> NoReturn:
        """Not declared. Raises UserError."""
        raise UserError("this backend imports no snapshots", where="sandbox", fix="use the `process` backend")
