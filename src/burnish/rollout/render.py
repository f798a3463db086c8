"""From messages to token deltas, and back to text.

An attempt is one growing token sequence. This module only ever produces what is *appended* to it; the sampled tokens
in between are kept as they came out of the engine. Nothing is re-tokenised: the tokens trained are those sampled (I4).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from burnish.errors import UserError

Message = Mapping[str, str]  # {"role": "system" | "user" | "assistant", "content": ...}
_ANSWER = (
    "\x1aANSWER\x1a"  # stands for an answer while a template is taken apart; no template writes control characters
)
_OBSERVATION = "\x1aOBSERVATION\x1a"


class Renderer(Protocol):
    """What the rollout loop needs of a prompt format."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        ...

    def start(self, messages: Sequence[Message], /) -> tuple[int, ...]:
        """The first delta: all messages and the opening of the first answer."""
        ...

    def follow_up(self, observation: str, /, *, ended: bool) -> tuple[int, ...]:
        """The delta between an answer and the next one. `ended`: the answer's last token already is a stop token."""
        ...

    def decode(self, token_ids: Sequence[int], /) -> str:
        """The text of sampled tokens, without special tokens."""
        ...


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    eos_token_id: int | None
    chat_template: Any

    def apply_chat_template(self, conversation: list[dict[str, str]], /, **kwargs: Any) -> Any: ...
    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, token_ids: list[int], /, *, skip_special_tokens: bool = False) -> str: ...


class ChatRenderer:
    """Renders with a tokenizer's own chat template, whatever it is.

    The text between two answers is cut out of a sample conversation, so that every template which prints a conversation
    in order works, and one that rewrites its past is refused.

    Raises:
        UserError: the tokenizer has no chat template or no end token, or the template does not print answers in order.
    """

    def __init__(self, tokenizer: ChatTokenizer, /) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                "the tokenizer has no chat template", where="model.path", fix="use an instruction-tuned model"
            )
        if tokenizer.eos_token_id is None:
            raise UserError("the tokenizer has no end-of-turn token", where="model.path")
        self._tokenizer = tokenizer
        self._stop_text = tokenizer.decode([tokenizer.eos_token_id])
        self._before, self._after = self._take_apart()

    @property
    def stop_ids(self) -> tuple[int, ...]:
        assert self._tokenizer.eos_token_id is not None
        return (self._tokenizer.eos_token_id,)

    def start(self, messages: Sequence[Message], /) -> tuple[int, ...]:
        text = self._template([dict(message) for message in messages])
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def follow_up(self, observation: str, /, *, ended: bool) -> tuple[int, ...]:
        before = self._before
        if ended:
            before = before.removeprefix(self._stop_text)
        text = before + observation + self._after
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int], /) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def _template(self, messages: list[dict[str, str]]) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _take_apart(self) -> tuple[str, str]:
        """The text before and after an observation, from the end of an answer to the start of the next."""
        text = self._template(
            [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": _ANSWER},
                {"role": "user", "content": _OBSERVATION},
            ]
        )
        _, found, rest = text.partition(_ANSWER)
        before, found_too, after = rest.partition(_OBSERVATION)
        if not found or not found_too:
            raise UserError("the chat template does not print answers and questions in order", where="model.path")
        return before, after
