"""Any OpenAI-compatible chat completions endpoint as a policy, for evaluation only.

What is tried again, within one deadline: no connection, a broken connection, HTTP 408, 429 and 5xx. What is not: an
answer that makes no sense (EngineError, with the answer as evidence), and what asking again can never cure: a key that
is refused, a model or path that does not exist (UserError).
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Literal

import httpx
import msgspec

from burnish.engine.chat import ChatCodec, ChatReply, Message, as_generate
from burnish.errors import EngineError, UserError, boundary
from burnish.types import Completion, Sampling

__all__ = ["ChatCodec", "OpenAIEngine"]

MAX_BACKOFF_S = 30.0
EXCERPT_CHARS = 500  # of an answer, as evidence
_TRY_AGAIN = frozenset({408, 429})  # and every 5xx
_PING = Sampling(max_new_tokens=1)


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Literal["stop", "length"]  # with any other (a filter, a tool call, null) there is no answer to judge


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None


class _Answer(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


class OpenAIEngine:
    """A `ChatFn` (`chat`) and a `GenerateFn` (`generate`, with `ChatCodec` as the renderer).

    Example:
        async with OpenAIEngine("http://127.0.0.1:8000/v1", model="qwen3-8b") as engine:
            await engine.check()
            setup = RolloutSetup(generate=engine.generate, renderer=ChatCodec(), ...)
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        api_key_env: str | None = None,
        deadline_s: float = 300.0,
        max_retries: int = 5,
        backoff_s: float = 1.0,
        max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Connects to nothing yet.

        Args:
            base_url: up to and with the version, e.g. "https://api.openai.com/v1".
            api_key_env: the name of the environment variable that holds the key; None sends no key.
            deadline_s: of one answer, all its tries and waits together.
            backoff_s: the wait before the first retry; doubles up to 30 s, unless the server names a time.
            max_tokens_key: "max_completion_tokens" for endpoints that refuse the older name.

        Raises:
            UserError: the URL is none, or the key is not there or cannot be a key.
        """
        self._url = _endpoint(base_url)
        self._model = model
        self._api_key_env = api_key_env
        self._key = _api_key(api_key_env)
        self._deadline_s = deadline_s
        self._max_retries = max_retries
        self._backoff_s = backoff_s
        self._max_tokens_key = max_tokens_key
        self._sleep = sleep
        self._generate = as_generate(self.chat)
        self.num_retries = 0  # over all requests so far
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # The deadline is ours and the number of requests is the caller's to bound; httpx shall do neither.
        self._client = httpx.AsyncClient(
            headers=headers, timeout=None, limits=httpx.Limits(max_connections=None, max_keepalive_connections=64)
        )

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        """Answers a conversation rendered by `ChatCodec`. Raises as `chat`."""
        return await self._generate(prompt_ids, sampling)

    async def chat(self, messages: Sequence[Message], sampling: Sampling, /) -> ChatReply:
        """Answers a conversation. The text ends before a stop string, as endpoints do.

        Raises:
            EngineError: no answer within the deadline or the retries, a request refused, an answer without sense.
            UserError: the key is refused, or the model or the path does not exist.
        """
        body = json.dumps(self._request(messages, sampling)).encode()  # ASCII: lone surrogates survive
        failures: list[str] = []
        try:
            async with asyncio.timeout(self._deadline_s):
                response = await self._post(body, failures)
        except TimeoutError as error:
            cause = f"chat: deadline exceeded: no answer within {self._deadline_s:g} s"
            raise EngineError(cause, evidence="\n".join(failures)) from error
        return self._parse(response)

    async def check(self) -> None:
        """Asks for one token, so that a wrong URL, key or model is known before a suite starts. Raises as `chat`."""
        await self.chat([{"role": "user", "content": "Hello"}], _PING)

    async def close(self) -> None:
        """Closes all connections. Idempotent."""
        await self._client.aclose()

    async def __aenter__(self) -> "OpenAIEngine":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _request(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "temperature": sampling.temperature,
            self._max_tokens_key: sampling.max_new_tokens,
        }
        # What is off is left out: not every endpoint knows every key, and `top_k` is no key of OpenAI's own.
        if sampling.top_p != 1.0:
            request["top_p"] = sampling.top_p
        if sampling.top_k:
            request["top_k"] = sampling.top_k
        if sampling.stop_strings:
            request["stop"] = list(sampling.stop_strings)
        if sampling.seed is not None:
            request["seed"] = sampling.seed
        return request

    async def _post(self, body: bytes, failures: list[str]) -> httpx.Response:
        """The first answer with a 2xx status. What went wrong before it is appended to `failures`."""
        for num_tried in range(1, self._max_retries + 2):
            asked_s = None
            try:
                with boundary(EngineError, during="request"):
                    response = await self._client.post(
                        self._url, content=body, headers={"Content-Type": "application/json"}
                    )
            except EngineError as error:
                failures.append(error.cause)
            else:
                if response.is_success:
                    return response
                self._raise_unless_passing(response)
                failures.append(self._describe(response))
                asked_s = _retry_after_s(response)
            if num_tried <= self._max_retries:
                await self._wait(num_tried, asked_s, failures)
        raise EngineError(f"chat: gave up after {len(failures)} tries: {failures[-1]}", evidence="\n".join(failures))

    async def _wait(self, num_tried: int, asked_s: float | None, failures: list[str]) -> None:
        if asked_s is not None and asked_s >= self._deadline_s:
            cause = f"chat: the endpoint asks to wait {asked_s:g} s, the deadline is {self._deadline_s:g} s"
            raise EngineError(cause, evidence="\n".join(failures))
        self.num_retries += 1
        # Jitter, so that a hundred attempts refused together do not come back together.
        backoff_s = min(MAX_BACKOFF_S, self._backoff_s * 2 ** (num_tried - 1)) * random.uniform(0.5, 1.0)
        await self._sleep(backoff_s if asked_s is None else asked_s)

    def _raise_unless_passing(self, response: httpx.Response) -> None:
        """Raises for a refusal that will be the same next time."""
        status = response.status_code
        said = self._describe(response)
        if status in (401, 403):
            fix = f"put a valid key into {self._api_key_env}" if self._api_key_env else "name a key with api_key_env"
            raise UserError(f"the endpoint refuses the key: {said}", where=str(self._url), fix=fix)
        if status == 404:
            raise UserError(
                f"no model {self._model!r} there, or no such path: {said}",
                where=str(self._url),
                fix="check base_url (it ends with the version, e.g. /v1) and the model's name",
            )
        if status not in _TRY_AGAIN and status < 500:
            raise EngineError(f"chat: request refused: HTTP {status}", evidence=said)

    def _parse(self, response: httpx.Response) -> ChatReply:
        try:
            with boundary(EngineError, during="chat: malformed answer"):
                # Not msgspec's own JSON: it refuses the lone surrogates that models do write.
                answer = msgspec.convert(json.loads(response.content), _Answer)
        except EngineError as error:
            raise EngineError(error.cause, evidence=self._describe(response)) from error
        choice = answer.choices[0]
        text = choice.message.content
        if text is None and choice.finish_reason == "length":
            text = ""  # a model that thinks first may have spent all its tokens before the answer
        if text is None:
            raise EngineError("chat: malformed answer: no content", evidence=self._describe(response))
        num_tokens = answer.usage.completion_tokens if answer.usage else None
        return ChatReply(text=text, finish=choice.finish_reason, num_tokens=num_tokens)

    def _describe(self, response: httpx.Response) -> str:
        """Status and the head of the body; servers like to quote the key that they refuse, so it is taken out."""
        text = response.text.replace(self._key, "***") if self._key else response.text
        return f"HTTP {response.status_code}: {text[:EXCERPT_CHARS]}"


def _endpoint(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise UserError(f"{base_url!r} is not a URL: {error}", where="base_url") from error
    fix = "give something like https://api.openai.com/v1 or http://127.0.0.1:8000/v1"
    if url.scheme not in ("http", "https") or not url.host:
        raise UserError(f"{base_url!r} is not an http(s) URL with a host", where="base_url", fix=fix)
    if url.userinfo:
        raise UserError("holds a user or password", where="base_url", fix="put the key into an environment variable")
    path = url.path.rstrip("/")
    if path.endswith("/completions"):
        raise UserError(f"{base_url!r} names the endpoint itself", where="base_url", fix=fix)
    return url.copy_with(path=f"{path}/chat/completions")


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UserError("the environment variable is not set", where=variable, fix=f"export {variable}=...")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError("the key holds a space, a line end or another odd character", where=variable)
    return key


def _retry_after_s(response: httpx.Response) -> float | None:
    """Seconds or an HTTP date (RFC 9110, section 10.2.3); None where the header is absent or makes no sense."""
    value = response.headers.get("Retry-After", "").strip()
    if value.replace(".", "", 1).isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
