"""Answers of an engine that must not reach a learner, whatever they are worth."""

import math

from burnish.types import Completion


def poison_of(completion: Completion, *, max_new_tokens: int) -> str | None:
    """What is wrong with an answer; None for one that can be used.

    A broken kernel or a driver gives NaN logprobs or endless answers before it gives an error; trained, one such token
    spoils the weights.
    """
    num = len(completion.token_ids)
    if len(completion.logprobs) != num or len(completion.versions) != num:
        return f"{num} tokens with {len(completion.logprobs)} logprobs and {len(completion.versions)} versions"
    if num > max_new_tokens:
        return f"{num} tokens, where {max_new_tokens} were asked for"
    if num == 0 and completion.finish != "cancelled":
        return "no token at all"
    wrong = next((p for p in completion.logprobs if not math.isfinite(p) or p > 0.0), None)
    if wrong is not None:
        return f"a logprob of {wrong}"
    if any(version < 0 for version in completion.versions):
        return f"version {min(completion.versions)}"
    return None
