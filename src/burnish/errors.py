"""Failures have an address.

Two families, and nothing else leaves a part of burnish:

* `UserError`: somebody asked for something that cannot be (a wrong key, a missing file, a value out of range). It
  names the cause, the place and the fix; the command line prints it and exits with code 2.
* `BoundaryError`: the world outside failed while we talked to it. One flat class per boundary; `boundary()` is the only
  place where a foreign exception is caught and given such a name. An attempt that meets one becomes
  `Unmeasured(boundary, cause, evidence)`, never a reward (invariant I1).

Example:
    >>> with boundary(SandboxError, during="create"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    burnish.errors.SandboxError: sandbox: create: OSError: [Errno 28] No space left on device
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

EVIDENCE_CHARS = 2000  # enough for the last frames of a remote traceback; journals keep one per failed attempt


class UserError(ValueError):
    """A mistake of the person who asked: `cause` says what is wrong, `where` the key or path, `fix` what to do."""

    exit_code: ClassVar[int] = 2

    def __init__(self, cause: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.cause, self.where, self.fix = cause, where, fix
        lines = [f"{where}: {cause}" if where else cause]
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))


class BoundaryError(Exception):
    """The world outside failed. `boundary` names the wall, `cause` what happened, `evidence` the proof."""

    boundary: ClassVar[str] = "unknown"

    def __init__(self, cause: str, *, evidence: str = "") -> None:
        self.cause = cause
        self.evidence = evidence[-EVIDENCE_CHARS:]
        super().__init__(f"{self.boundary}: {cause}")


class EngineError(BoundaryError):
    """The inference engine died, refused a request or missed a deadline."""

    boundary = "engine"


class SandboxError(BoundaryError):
    """The sandbox host or a sandbox failed (a program that fails *inside* a sandbox is a result, not this)."""

    boundary = "sandbox"


class GraderError(BoundaryError):
    """Grading could not be carried out; says nothing about the attempt that was to be graded."""

    boundary = "grader"


class LearnerError(BoundaryError):
    """The learner process died, refused a batch or missed a deadline."""

    boundary = "learner"


class StoreError(BoundaryError):
    """The run directory could not be read or written (disk full, permissions, corruption)."""

    boundary = "store"


class AttemptError(BoundaryError):
    """One attempt as a whole missed its deadline, although each of its parts kept its own."""

    boundary = "attempt"


class PolicyError(BoundaryError):
    """Agent code (rendering, parsing) raised: our bug or a plug-in's, not the model's doing."""

    boundary = "agent"


BOUNDARIES: tuple[type[BoundaryError], ...] = (
    EngineError, SandboxError, GraderError, LearnerError, StoreError, AttemptError, PolicyError,
)  # fmt: skip


@contextmanager
def boundary(kind: type[BoundaryError], *, during: str) -> Iterator[None]:
    """Gives every foreign exception of its block the name of one boundary.

    A `BoundaryError` passes unchanged: the innermost wall that fell is the address. `UserError` passes too, and so do
    cancellation, ctrl-C and interpreter exit, which are nobody's failure. A deadline that expired becomes
    the cause "deadline exceeded".

    Raises:
        kind: in place of any other exception, with the original as `__cause__`.
    """
    try:
        yield
    except (BoundaryError, UserError):
        raise
    except TimeoutError as error:
        raise kind(f"{during}: deadline exceeded", evidence=repr(error)) from error
    except Exception as error:
        raise kind(f"{during}: {type(error).__name__}: {error}", evidence=repr(error)) from error


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show for concurrent work that failed: the first BoundaryError or UserError in it, else the first."""
    leaves = list(_leaves(group))
    return next((leaf for leaf in leaves if isinstance(leaf, (BoundaryError, UserError))), leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
