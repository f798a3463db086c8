"""When a completion ends: stop ids, stop strings on the decoded text, and the token limits."""

from collections.abc import Callable, Sequence

from burnish.types import FinishReason, Sampling

Decode = Callable[[Sequence[int]], str]
UNFINISHED = "\ufffd"  # what tokenizers decode the first bytes of a cut UTF-8 character to
MAX_PENDING = 8  # tokens; a character is at most 4 bytes, so text still undecodable after these is not going to be


class StopChecker:
    """Follows one completion token by token. The work for a token does not grow with the completion's length."""

    def __init__(self, sampling: Sampling, *, max_tokens: int, decode: Decode | None) -> None:
        """`max_tokens` is the smaller of the request's limit and the room in the context."""
        self._stop_ids = frozenset(sampling.stop_ids)
        self._stop_strings = tuple(text for text in sampling.stop_strings if text)
        self._keep_chars = max(map(len, self._stop_strings), default=1) - 1
        self._max_tokens = max_tokens
        self._decode = decode
        self._num_tokens = 0
        self._context: list[int] = []  # decoded before; decoders may treat a token differently at the start of a text
        self._pending: list[int] = []  # not decoded yet
        self._tail = ""  # the last characters that a stop string could still begin in

    def feed(self, token: int) -> FinishReason | None:
        """Takes the next sampled token; says why the completion ends with it, or None."""
        self._num_tokens += 1
        if token in self._stop_ids or (self._stop_strings and self._completes_string(token)):
            return "stop"
        return "length" if self._num_tokens >= self._max_tokens else None

    def _completes_string(self, token: int) -> bool:
        assert self._decode is not None
        self._pending.append(token)
        before = self._decode(self._context)
        after = self._decode(self._context + self._pending)
        new = after[len(before) :]
        whole = not new.endswith(UNFINISHED) or len(self._pending) >= MAX_PENDING
        text = self._tail + (new if whole else new.rstrip(UNFINISHED))
        if whole:
            self._tail = text[-self._keep_chars :] if self._keep_chars else ""
            self._context, self._pending = self._pending, []
        return any(stop in text for stop in self._stop_strings)
