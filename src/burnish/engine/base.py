"""The seam between rollouts and whatever produces tokens.

An engine takes token ids and returns token ids: text never crosses this seam, so nothing can be re-tokenised (I4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from burnish.errors import BoundaryError
from burnish.types import Completion, PolicyVersion, Sampling


class GenerateFn(Protocol):
    """Continues one prompt. Safe to call many times concurrently; cancelling the awaiting task cancels the request."""

    async def __call__(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        """Raises EngineError when the engine died, refused the request or missed its deadline."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStats:
    """What the engine is doing.

    Example: EngineStats(running=48, waiting=3, num_generated_tokens=120_000)
    """

    running: int  # sequences in the batch
    waiting: int  # sequences without a slot yet
    num_generated_tokens: int  # since the start
    queue_s: float | None = None  # how long the oldest waiting sequence has waited; None where that is not known
    kv_use: float | None = None  # share of the cache of keys and values in use, where it can run out


class Engine(Protocol):
    """A `GenerateFn` with weights that can be replaced while requests run."""

    @property
    def death(self) -> BoundaryError | None:
        """Why the engine is gone for good; None while it lives."""
        ...

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion: ...

    async def update_weights(self, path: Path, version: PolicyVersion, /) -> None:
        """Loads a published version between two tokens. Running requests go on; later tokens carry `version`."""
        ...

    async def stats(self) -> EngineStats:
        """Raises EngineError when the engine is gone."""
        ...

    async def kill(self, cause: str, /) -> None:
        """Ends an engine that hangs, at once; `death` and the requests that were running then name the cause."""
        ...

    async def close(self) -> None:
        """Ends the engine and its process. Idempotent; requests still running fail with EngineError."""
        ...


class Tokenizer(Protocol):
    """What rendering needs of a tokenizer; transformers' tokenizers fit."""

    def encode(self, text: str, /) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], /) -> str: ...
