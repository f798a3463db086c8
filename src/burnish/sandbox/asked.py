"""A limit that is asked for is held, or refused before anything runs."""

from collections.abc import Collection

from burnish.errors import UserError
from burnish.types import Limits

LEAST_NUM_CPUS = 0.05  # the kernel hands out no less than a millisecond in twenty


def require_limits(limits: Limits, declared: Collection[str], backend: str) -> None:
    """Raises UserError for a limit that is out of range, or that a backend with these capabilities cannot hold."""
    for name, capability, least in (("num_cpus", "limits.cpu", LEAST_NUM_CPUS), ("cpu_s", "limits.cpu_time", 0.001)):
        value = getattr(limits, name)
        if value is None:
            continue
        if not least <= value < float("inf"):
            raise UserError(f"{value!r}", where=f"limits.{name}", fix=f"a number from {least} on, or None for no limit")
        if capability not in declared:
            raise UserError(
                f"the {backend} backend cannot hold it on this machine",
                where=f"limits.{name}",
                fix=f"leave it out, or use a backend that declares {capability!r} (docs/backends.md)",
            )
