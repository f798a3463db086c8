"""Continuous batching over one model: requests join and leave between tokens.

One `step` is one forward pass: a token for every running sequence, and the prompts of those that join. Running sequence
`i` owns cache row `i`; when one leaves, the last takes its row, so that the rows in use are always the first ones. Rows
beyond `num_slots` keep what finished sequences computed, so that the next turn of the same attempt, or another attempt
at the same task, starts from there (exact prefixes only).

New weights are taken between two steps. Running sequences keep their keys and values: those were computed by older
weights, as in every system that updates in flight, and each later token carries the new version. Kept prefixes are
forgotten, and nothing is shared from a sequence that began before the update.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from burnish.engine.local.attention import KVCache, Pass, Segment
from burnish.engine.local.model import LocalModel
from burnish.engine.local.sampling import Sampler, sample
from burnish.engine.local.stops import Decode, StopChecker
from burnish.errors import UserError
from burnish.types import Completion, FinishReason, PolicyVersion, Sampling

MIN_SHARED_TOKENS = 16  # a shorter common prefix is cheaper to compute than to look after
MAX_PREFILL_TOKENS = 4096  # in one pass; bounds its memory and how long running sequences wait for it


@dataclass(slots=True, eq=False)
class _Sequence:
    """One request on its way. While it runs, its cache row holds all of `ids` but the last."""

    request_id: int
    ids: list[int]
    sampler: Sampler
    stops: StopChecker
    num_prompt_tokens: int
    added_at: float = field(default_factory=time.monotonic)
    version: PolicyVersion = -1  # of the weights when it began to run
    logprobs: list[float] = field(default_factory=list)
    versions: list[PolicyVersion] = field(default_factory=list)

    def completion(self, finish: FinishReason) -> Completion:
        return Completion(
            token_ids=tuple(self.ids[self.num_prompt_tokens :]),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            finish=finish,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A request that ended.

    Example: Finished(request_id=3, completion=completion)
    """

    request_id: int
    completion: Completion


@dataclass(slots=True)
class _Joining:
    """The sequences that join in one step and where their first logits come from."""

    segments: list[Segment] = field(default_factory=list)  # prompts (or their unshared ends) to compute
    ids: list[int] = field(default_factory=list)  # the tokens of all segments
    twins: list[tuple[int, int]] = field(default_factory=list)  # (row that computes the prompt, row that copies it)
    segment_of: list[int] = field(default_factory=list)  # joining sequence -> index of its segment


class EngineCore:
    """The engine without its process: synchronous, single-threaded, driven by `step`.

    Example:
        core = EngineCore(load_model(folder, dtype=torch.bfloat16, device="cpu"), num_slots=8, max_context_tokens=512)
        core.add(0, [1, 2, 3], Sampling(max_new_tokens=16))
        while core.busy:
            for finished in core.step():
                print(finished.completion.token_ids)
    """

    def __init__(
        self,
        model: LocalModel,
        *,
        num_slots: int,
        max_context_tokens: int,
        version: PolicyVersion = 0,
        decode: Decode | None = None,
        num_kept: int | None = None,
    ) -> None:
        """`decode` is needed for stop strings. `num_kept`: finished sequences kept for sharing; None: `num_slots`.

        Raises UserError when the model has fewer positions than `max_context_tokens`.
        """
        if model.max_positions is not None and max_context_tokens > model.max_positions:
            raise UserError(
                f"{max_context_tokens} tokens, but the model has only {model.max_positions} positions",
                where="model.max_context_tokens",
                fix=f"give at most {model.max_positions}",
            )
        num_rows = num_slots + (num_slots if num_kept is None else num_kept)
        self._model = model
        self._num_slots = num_slots
        self._max_context = max_context_tokens
        self._decode = decode
        self._cache = KVCache(
            model.shape,
            num_layers=model.num_layers,
            rows=num_rows,
            capacity=max_context_tokens,
            dtype=model.dtype,
            device=model.device,
        )
        self._running: list[_Sequence] = []
        self._waiting: deque[_Sequence] = deque()
        self._kept: dict[int, list[int]] = {}  # row -> the tokens it holds; least recently used first
        self._free_rows = list(range(num_slots, num_rows))
        self.version = version
        self.num_generated_tokens = 0
        self.num_prefilled_tokens = 0  # computed; what was shared is not in it

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def queue_s(self) -> float:
        """How long the oldest waiting sequence has waited."""
        return time.monotonic() - self._waiting[0].added_at if self._waiting else 0.0

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting)

    def add(self, request_id: int, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        """Queues a request. It ends early with "length" when its context is full.

        Raises ValueError for a request that cannot be served; the others are not touched.
        """
        room = self._max_context - len(prompt_ids)
        if not prompt_ids:
            raise ValueError("the prompt is empty")
        if room < 1:
            raise ValueError(f"the prompt has {len(prompt_ids)} tokens; the context is {self._max_context}")
        for token in prompt_ids:
            if not 0 <= token < self._model.vocab_size:
                raise ValueError(f"token id {token} is outside the vocabulary of {self._model.vocab_size}")
        _check(sampling)
        if sampling.stop_strings and self._decode is None:
            raise ValueError("stop strings need a tokenizer, and this engine has none")
        self._waiting.append(
            _Sequence(
                request_id=request_id,
                ids=list(prompt_ids),
                sampler=Sampler(sampling),
                stops=StopChecker(sampling, max_tokens=min(sampling.max_new_tokens, room), decode=self._decode),
                num_prompt_tokens=len(prompt_ids),
            )
        )

    def cancel(self, request_id: int) -> Completion | None:
        """Ends a request now and frees its slot; what it had sampled, or None when it is not here (any more)."""
        for sequence in self._waiting:
            if sequence.request_id == request_id:
                self._waiting.remove(sequence)
                return sequence.completion("cancelled")
        for sequence in self._running:
            if sequence.request_id == request_id:
                self._release([sequence])
                return sequence.completion("cancelled")
        return None

    def update_weights(self, folder: Path, version: PolicyVersion) -> None:
        """Loads a folder's safetensors in place.

        Nothing has changed when it raises: ValueError for weights that do not fit, OSError or SafetensorError.
        """
        self._model.update_weights(folder)
        self._free_rows += self._kept
        self._kept.clear()
        self.version = version

    @torch.inference_mode()
    def step(self) -> list[Finished]:
        """One token for every running sequence and the first of each that joins; returns the requests that ended."""
        num_decode = len(self._running)
        joining = self._admit()
        if not self._running:
            return []
        logits_MV = self._forward(num_decode, joining)
        for source, target in joining.twins:
            self._cache.copy(source, target, len(self._running[target].ids))
        if joining.twins:
            logits_MV = logits_MV[[*range(num_decode), *(num_decode + index for index in joining.segment_of)]]
        tokens, logprobs = sample(logits_MV, [sequence.sampler for sequence in self._running])
        return self._append(tokens, logprobs)

    def _admit(self) -> _Joining:
        """Moves waiting sequences into free slots. Equal prompts that join together are computed once."""
        joining = _Joining()
        num_decode = len(self._running)
        segment_by_prompt: dict[tuple[int, ...], int] = {}
        while self._waiting and len(self._running) < self._num_slots:
            sequence, row = self._waiting[0], len(self._running)
            prompt = tuple(sequence.ids)
            if (index := segment_by_prompt.get(prompt)) is not None:
                joining.twins.append((joining.segments[index].row, row))
            else:
                source, start = self._longest_shared(sequence.ids, num_decode)
                if joining.ids and len(joining.ids) + len(prompt) - start > MAX_PREFILL_TOKENS:
                    break
                if source is not None:
                    self._cache.copy(source, row, start)
                index = segment_by_prompt[prompt] = len(joining.segments)
                joining.segments.append(Segment(row=row, start=start, length=len(prompt) - start))
                joining.ids += prompt[start:]
            joining.segment_of.append(index)
            sequence.version = self.version
            self._running.append(self._waiting.popleft())
        self.num_prefilled_tokens += len(joining.ids)
        return joining

    def _longest_shared(self, ids: list[int], num_decode: int) -> tuple[int | None, int]:
        """The row that holds the longest prefix of `ids` under the current weights, and its length; (None, 0)."""
        holders: list[tuple[int, list[int], int]] = [(row, held, len(held)) for row, held in self._kept.items()]
        for row, sequence in enumerate(self._running[:num_decode]):
            if sequence.version == self.version:
                holders.append((row, sequence.ids, len(sequence.ids) - 1))
        best_row, best_length = None, MIN_SHARED_TOKENS - 1
        for row, held, length in holders:
            # The last token is always computed: its logits are wanted.
            shared = _common_prefix(ids, held, min(len(ids) - 1, length))
            if shared > best_length:
                best_row, best_length = row, shared
        if best_row is None:
            return None, 0
        if best_row in self._kept:
            self._kept[best_row] = self._kept.pop(best_row)  # now the most recently used
        return best_row, best_length

    def _forward(self, num_decode: int, joining: _Joining) -> Tensor:
        """Logits [M, V]: of the decoding sequences, then of the last token of each segment."""
        device = self._model.device
        decoding = self._running[:num_decode]
        plan = Pass(
            [len(sequence.ids) - 1 for sequence in decoding],
            joining.segments,
            capacity=self._max_context,
            device=device,
        )
        keep = list(range(num_decode))
        end = num_decode
        for segment in joining.segments:
            end += segment.length
            keep.append(end - 1)
        ids_N = torch.tensor([sequence.ids[-1] for sequence in decoding] + joining.ids, device=device)
        self._cache.current = plan
        return self._model.logits(ids_N, plan.positions_N, torch.tensor(keep, device=device), self._cache)

    def _append(self, tokens: Iterable[int], logprobs: Iterable[float]) -> list[Finished]:
        """Gives every running sequence its token and lets go of those that end with it."""
        ended: list[tuple[_Sequence, FinishReason]] = []
        for sequence, token, logprob in zip(self._running, tokens, logprobs, strict=True):
            sequence.ids.append(token)
            sequence.logprobs.append(logprob)
            sequence.versions.append(self.version)
            if (finish := sequence.stops.feed(token)) is not None:
                ended.append((sequence, finish))
        self.num_generated_tokens += len(self._running)
        self._release([sequence for sequence, _ in ended])
        return [
            Finished(request_id=sequence.request_id, completion=sequence.completion(finish))
            for sequence, finish in ended
        ]

    def _release(self, leaving: list[_Sequence]) -> None:
        """Frees the rows of sequences; the rows in use stay the first ones."""
        for row in reversed([self._running.index(sequence) for sequence in leaving]):
            sequence = self._running[row]
            self._keep(row, sequence)
            last = self._running.pop()
            if last is not sequence:
                self._cache.copy(len(self._running), row, len(last.ids) - 1)
                self._running[row] = last

    def _keep(self, row: int, sequence: _Sequence) -> None:
        """Saves what a leaving sequence computed, over what it continues or else what was longest unused."""
        held = sequence.ids[:-1]
        if sequence.version != self.version or len(held) < MIN_SHARED_TOKENS:
            return
        target = next((kept for kept, ids in self._kept.items() if held[: len(ids)] == ids), None)  # it says no more
        if target is None:
            if self._free_rows:
                target = self._free_rows.pop()
            elif self._kept:
                target = next(iter(self._kept))
            else:
                return
        self._kept.pop(target, None)
        self._cache.copy(row, target, len(held))
        self._kept[target] = held


def _check(sampling: Sampling) -> None:
    """Raises ValueError for parameters out of their range."""
    ranges = {
        "max_new_tokens": sampling.max_new_tokens >= 1,
        "temperature": 0 <= sampling.temperature < math.inf,
        "top_p": 0 < sampling.top_p <= 1,
        "top_k": sampling.top_k >= 0,
    }
    for name, is_fine in ranges.items():
        if not is_fine:
            raise ValueError(f"{name} is {getattr(sampling, name)}, which is out of range")


def _common_prefix(a: list[int], b: list[int], limit: int) -> int:
    """The length of the longest common prefix, at most `limit`."""
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
