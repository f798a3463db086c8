"""A chat endpoint as a policy, for evaluation.

The engine seam carries token ids, and an endpoint that speaks in messages has none to give. Instead of a second
rollout loop for text, `ChatCodec` is a prompt format of its own: an id is a Unicode code point, and four ids above them
mark who speaks. Rendering, decoding and cutting a conversation back into messages are exact, and the one loop runs as
it is:

    messages ──ChatCodec.start──► ids ──rollout──► ids ──ChatCodec.messages──► messages ──ChatFn──► text ──► ids

Such ids are no model's tokens. Their logprobs are NaN, which the learner refuses: never train on them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from burnish.engine.base import GenerateFn
from burnish.types import Completion, Sampling

Message = Mapping[str, str]  # {"role": "system" | "user" | "assistant", "content": ...}

_MARKS = 0x110000  # the first integer that is not a code point
_ROLES = {"system": _MARKS, "user": _MARKS + 1, "assistant": _MARKS + 2}
_NAMES = {mark: role for role, mark in _ROLES.items()}
_END = _MARKS + 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatReply:
    """What a chat endpoint answered.

    Example: ChatReply(text="```python\\n...", finish="stop", num_tokens=41)
    """

    text: str
    finish: Literal["stop", "length"]
    num_tokens: int | None  # as the endpoint counts them; None when it does not say


class ChatFn(Protocol):
    """Answers one conversation. Safe to call many times concurrently; has its own deadline."""

    async def __call__(self, messages: Sequence[Message], sampling: Sampling, /) -> ChatReply:
        """Raises EngineError when there is no answer, UserError when asking again can never help."""
        ...


class ChatCodec:
    """The `Renderer` of the rollout loop for endpoints that take messages. Lossless for every Python string.

    Example:
        >>> codec = ChatCodec()
        >>> ids = codec.start([{"role": "user", "content": "Hi"}])
        >>> ids == (0x110001, 72, 105, 0x110003, 0x110002)
        True
        >>> codec.messages(ids)
        [{'role': 'user', 'content': 'Hi'}]
    """

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (_END,)

    def start(self, messages: Sequence[Message], /) -> tuple[int, ...]:
        """All messages and the opening of the first answer. Raises ValueError for a role other than the three."""
        ids = [id for message in messages for id in _encode(message["role"], message["content"])]
        return (*ids, _ROLES["assistant"])

    def follow_up(self, observation: str, /, *, ended: bool) -> tuple[int, ...]:
        """From the end of an answer to the opening of the next; `ended`: the answer's last id already is the end."""
        closing = () if ended else (_END,)
        return (*closing, *_encode("user", observation), _ROLES["assistant"])

    def decode(self, token_ids: Sequence[int], /) -> str:
        """The text, without the marks."""
        return "".join(chr(id) for id in token_ids if id < _MARKS)

    def messages(self, token_ids: Sequence[int], /) -> list[dict[str, str]]:
        """The conversation that waits for an answer.

        Raises:
            ValueError: the ids are not what `start`, answers and `follow_up` make in turn.
        """
        if not token_ids or token_ids[-1] != _ROLES["assistant"] or token_ids[0] not in _NAMES:
            raise ValueError("a conversation starts with a role and ends with the opening of an answer")
        opened: list[tuple[str, list[int]]] = []
        for id in token_ids[:-1]:
            if id in _NAMES:
                opened.append((_NAMES[id], []))
            elif id != _END:
                opened[-1][1].append(id)
        return [{"role": role, "content": self.decode(ids)} for role, ids in opened]


def _encode(role: str, text: str) -> list[int]:
    if role not in _ROLES:
        raise ValueError(f"role must be one of {', '.join(_ROLES)}, not {role!r}")
    return [_ROLES[role], *map(ord, text), _END]


def as_generate(chat: ChatFn) -> GenerateFn:
    """Makes a rollout's engine of a chat function; to be used with `ChatCodec` as its renderer.

    The completion's versions are 0 and its logprobs NaN. `sampling.stop_ids` have no meaning to an endpoint.
    """
    codec = ChatCodec()

    async def generate(prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        reply = await chat(codec.messages(prompt_ids), sampling)
        ids = tuple(map(ord, reply.text)) + (codec.stop_ids if reply.finish == "stop" else ())
        return Completion(token_ids=ids, logprobs=(math.nan,) * len(ids), versions=(0,) * len(ids), finish=reply.finish)

    return generate
