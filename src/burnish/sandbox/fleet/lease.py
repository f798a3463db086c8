"""How long a sandbox may live, and how long it may do nothing. Pure: the clock is given."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from burnish.errors import UserError

Clock = Callable[[], float]
ClockName = Literal["ttl_s", "idle_timeout_s"]


class Lease:
    """Two clocks, in seconds: `ttl_s` since it was granted or renewed, `idle_timeout_s` since the last use ended.

    Nothing is idle while it is in use. None never ends.

    Example: Lease(ttl_s=3600, idle_timeout_s=60, clock=time.monotonic)
    """

    def __init__(self, *, ttl_s: float | None, idle_timeout_s: float | None, clock: Clock) -> None:
        """Raises UserError for a time that is not positive."""
        require_positive(ttl_s=ttl_s, idle_timeout_s=idle_timeout_s)
        self._ttl_s, self._idle_timeout_s, self._clock = ttl_s, idle_timeout_s, clock
        self._granted = self._last_used = clock()
        self._num_uses = 0

    @contextmanager
    def use(self) -> Iterator[None]:
        """In use for the length of a block."""
        self._num_uses += 1
        try:
            yield
        finally:
            self._num_uses -= 1
            self._last_used = self._clock()

    def renew(self, ttl_s: float | None = None) -> None:
        """Both clocks begin anew, the first one with another length if one is given."""
        require_positive(ttl_s=ttl_s)
        self._ttl_s = self._ttl_s if ttl_s is None else ttl_s
        self._granted = self._last_used = self._clock()

    @property
    def limits(self) -> dict[ClockName, float | None]:
        """What the clocks are held against."""
        return {"ttl_s": self._ttl_s, "idle_timeout_s": self._idle_timeout_s}

    @property
    def idle_s(self) -> float:
        """Seconds since the last use ended; 0 while it is in use."""
        return 0.0 if self._num_uses else self._clock() - self._last_used

    def left_s(self) -> float | None:
        """Seconds until a clock may run out, as it looks now; None when none ever does."""
        ends = [end for end in self._ends().values() if end is not None]
        return min(ends) - self._clock() if ends else None

    def expired(self) -> ClockName | None:
        """The clock that ran out, or None."""
        now = self._clock()
        return next((name for name, end in self._ends().items() if end is not None and end <= now), None)

    def _ends(self) -> dict[ClockName, float | None]:
        since = self._clock() if self._num_uses else self._last_used
        return {
            "ttl_s": None if self._ttl_s is None else self._granted + self._ttl_s,
            "idle_timeout_s": None if self._idle_timeout_s is None else since + self._idle_timeout_s,
        }


def require_positive(**times: float | None) -> None:
    """Raises UserError for the first that is given and not positive."""
    for name, value in times.items():
        if value is not None and not value > 0:
            raise UserError(f"{value} is no time to wait", where=name, fix="give seconds above 0, or leave it out")
