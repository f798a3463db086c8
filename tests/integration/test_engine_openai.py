"""The OpenAI-compatible engine against a real HTTP server with scripted answers and failures."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.engine.chat import ChatCodec
from burnish.engine.openai import OpenAIEngine
from burnish.errors import EngineError, UserError
from burnish.evaluate.suite import evaluate
from burnish.types import Attempt, Measured, Sampling, Task, Trajectory

SAMPLING = Sampling(max_new_tokens=16, temperature=0.5)
HELLO = [{"role": "user", "content": "Hello"}]
KEY = "sk-secret-123"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One scripted answer. `status` None breaks the connection; `hang` never answers."""

    body: str = ""
    status: int | None = 200
    headers: tuple[tuple[str, str], ...] = ()
    hang: bool = False


def reply(text: str | None, finish: str | None = "stop", num_tokens: int | None = 5) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    usage = None if num_tokens is None else {"prompt_tokens": 3, "completion_tokens": num_tokens}
    return Answer(body=json.dumps({"model": "m-2024", "choices": [choice], "usage": usage}))


@dataclass
class Server:
    """Answers request i with script[i], the last one again and again."""

    script: list[Answer]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)  # path, headers and body of each
    arrived: asyncio.Event = field(default_factory=asyncio.Event)  # a request that will hang is here
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # its client has left

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await self._head(reader):
                path, headers = head
                body = await reader.readexactly(int(headers["content-length"]))
                answer = self.script[min(len(self.requests), len(self.script) - 1)]
                self.requests.append({"path": path, "headers": headers, "body": json.loads(body)})
                if answer.hang:
                    self.arrived.set()
                    await reader.read()
                    self.gone.set()
                if answer.hang or answer.status is None:
                    return
                payload = answer.body.encode()
                lines = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {len(payload)}"]
                lines += [f"{name}: {value}" for name, value in answer.headers]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
                await writer.drain()
        finally:
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
        try:
            raw = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = raw.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines if line]
        return first.split(" ")[1], {name.lower(): value for name, value in pairs}


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    listeners: list[asyncio.Server] = []

    async def begin(*script: Answer) -> Server:
        server = Server(script=list(script))
        listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        listeners.append(listener)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        return server

    yield begin
    for listener in listeners:
        listener.close()
        await listener.wait_closed()


def engine_for(server: Server, **kwargs: Any) -> tuple[OpenAIEngine, list[float]]:
    """An engine that does not really wait between tries, and the waits it wanted."""
    waits: list[float] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    return OpenAIEngine(server.url, model="m", sleep=sleep, **{"deadline_s": 30.0, **kwargs}), waits


async def test_the_request_and_the_reply(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server = await start(reply("Hi there", "stop", 7), reply("cut", "length", None))
    engine, _ = engine_for(server, api_key_env="MY_KEY")
    full = Sampling(
        max_new_tokens=4, temperature=0.0, top_p=0.9, top_k=5, stop_strings=("\n\n",), stop_ids=(2,), seed=1
    )
    async with engine:
        first = await engine.chat(HELLO, SAMPLING)
        second = await engine.chat(HELLO, full)
    assert (first.text, first.finish, first.num_tokens) == ("Hi there", "stop", 7)
    assert (second.text, second.finish, second.num_tokens) == ("cut", "length", None)
    assert server.requests[0]["path"] == "/v1/chat/completions"
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    plain = {"model": "m", "messages": HELLO, "temperature": 0.5, "max_tokens": 16}
    assert server.requests[0]["body"] == plain
    options = {"temperature": 0.0, "max_tokens": 4, "top_p": 0.9, "top_k": 5, "stop": ["\n\n"], "seed": 1}
    assert server.requests[1]["body"] == plain | options


@pytest.mark.parametrize("failure", [500, 503, 408, 429, None])
async def test_a_passing_failure_is_tried_again(start: Start, failure: int | None) -> None:
    server = await start(Answer(status=failure), Answer(status=failure), reply("ok"))
    engine, waits = engine_for(server, backoff_s=1.0)
    async with engine:
        assert (await engine.chat(HELLO, SAMPLING)).text == "ok"
    assert len(server.requests) == 3
    assert engine.num_retries == 2
    assert 0.5 <= waits[0] <= 1.0 <= waits[1] <= 2.0


async def test_retry_after_is_obeyed_in_both_forms(start: Start) -> None:
    date = formatdate(time.time() + 60, usegmt=True)
    values = ("2.5", date, "soon", formatdate(0, usegmt=True))
    refusals = [Answer(status=429, headers=(("Retry-After", value),)) for value in values]
    server = await start(*refusals, reply("ok"))
    engine, waits = engine_for(server, backoff_s=0.1, deadline_s=300.0)
    async with engine:
        await engine.chat(HELLO, SAMPLING)
    assert waits[0] == 2.5
    assert 1.0 < waits[1] <= 60.0
    assert 0.2 <= waits[2] <= 0.4  # no sense: the third backoff
    assert waits[3] == 0.0  # a date in the past


async def test_retry_after_beyond_the_deadline_ends_at_once(start: Start) -> None:
    server = await start(Answer(status=429, body="quota", headers=(("Retry-After", "3600"),)))
    engine, waits = engine_for(server)
    async with engine:
        with pytest.raises(EngineError, match="asks to wait 3600 s, the deadline is 30 s") as caught:
            await engine.chat(HELLO, SAMPLING)
    assert "HTTP 429: quota" in caught.value.evidence
    assert waits == []


async def test_retries_are_bounded(start: Start) -> None:
    server = await start(Answer(status=502, body="bad gateway"))
    engine, _ = engine_for(server, max_retries=2)
    async with engine:
        with pytest.raises(EngineError, match="gave up after 3 tries: HTTP 502: bad gateway") as caught:
            await engine.chat(HELLO, SAMPLING)
    assert len(server.requests) == 3
    assert caught.value.evidence.count("bad gateway") == 3


async def test_connection_refused_is_an_engine_error_with_its_cause() -> None:
    unused = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = unused.sockets[0].getsockname()[1]
    unused.close()
    await unused.wait_closed()
    engine, waits = engine_for(Server(script=[], url=f"http://127.0.0.1:{port}/v1"), max_retries=1)
    async with engine:
        with pytest.raises(EngineError, match="gave up after 2 tries: request: ConnectError"):
            await engine.chat(HELLO, SAMPLING)
    assert len(waits) == 1


async def test_a_hang_meets_the_deadline_and_the_request_is_let_go(start: Start) -> None:
    server = await start(Answer(status=500, body="first"), Answer(hang=True))
    engine, _ = engine_for(server, deadline_s=0.3)
    async with engine:
        with pytest.raises(EngineError, match="deadline exceeded") as caught:
            await engine.chat(HELLO, SAMPLING)
        await asyncio.wait_for(server.gone.wait(), 10)
    assert caught.value.evidence == "HTTP 500: first"
    assert len(server.requests) == 2


async def test_cancelling_lets_the_request_go(start: Start) -> None:
    server = await start(Answer(hang=True))
    engine, _ = engine_for(server)
    async with engine:
        request = asyncio.create_task(engine.chat(HELLO, SAMPLING))
        await asyncio.wait_for(server.arrived.wait(), 10)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.wait_for(server.gone.wait(), 10)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(body="<html>oops"), "malformed answer: JSONDecodeError"),
        (Answer(body="[1]"), "malformed answer: ValidationError"),
        (Answer(body='{"error": {"message": "overloaded"}}'), "missing required field `choices`"),
        (Answer(body='{"choices": []}'), "malformed answer"),
        (reply(None), "malformed answer: no content"),
        (reply("x", "content_filter"), "content_filter"),
        (reply(None, "tool_calls"), "tool_calls"),
        (reply("x", None), "finish_reason"),
        (Answer(status=400, body="context too long"), "request refused: HTTP 400"),
        (Answer(status=302, body="elsewhere"), "request refused: HTTP 302"),
    ],
)
async def test_what_makes_no_sense_is_not_asked_again(start: Start, answer: Answer, message: str) -> None:
    server = await start(answer)
    engine, _ = engine_for(server)
    async with engine:
        with pytest.raises(EngineError, match=message) as caught:
            await engine.chat(HELLO, SAMPLING)
    assert len(server.requests) == 1
    assert answer.body[:40] in caught.value.evidence


async def test_all_tokens_spent_on_thinking_is_an_empty_answer(start: Start) -> None:
    server = await start(reply(None, "length"))
    engine, _ = engine_for(server)
    async with engine:
        assert (await engine.chat(HELLO, SAMPLING)).text == ""


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_the_users_and_never_shown(
    start: Start, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server = await start(Answer(status=status, body=f"invalid key {KEY}"))
    engine, _ = engine_for(server, api_key_env="MY_KEY")
    async with engine:
        with pytest.raises(UserError, match="refuses the key") as caught:
            await engine.check()
    assert "MY_KEY" in str(caught.value)
    assert KEY not in str(caught.value)


async def test_an_unknown_model_is_the_users(start: Start) -> None:
    server = await start(Answer(status=404, body="model not found"))
    engine, _ = engine_for(server)
    async with engine:
        with pytest.raises(UserError, match="no model 'm' there"):
            await engine.check()
    assert server.requests[0]["body"]["max_tokens"] == 1


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000/v1", "not an http"),
        ("ftp://host/v1", "not an http"),
        ("http://", "not an http"),
        ("http://host:port/v1", "is not a URL"),
        ("https://me:secret@host/v1", "user or password"),
        ("https://host/v1/chat/completions", "names the endpoint itself"),
    ],
)
def test_a_wrong_url_is_the_users(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        OpenAIEngine(url, model="m")


@pytest.mark.parametrize(("value", "message"), [(None, "is not set"), ("", "is not set"), ("a b\n", "odd character")])
def test_a_missing_or_odd_key_is_the_users(monkeypatch: pytest.MonkeyPatch, value: str | None, message: str) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(UserError, match=message):
        OpenAIEngine("http://host/v1", model="m", api_key_env="MY_KEY")


async def test_a_conversation_of_two_turns_through_the_token_seam(start: Start) -> None:
    """What the rollout loop does: start, generate, follow up, generate; the server must see the whole conversation."""
    odd = "naïve 🙂 \ud800 <|im_end|>\n"
    server = await start(reply(odd, "stop"), reply("cut off", "length"), reply("end", "stop"))
    engine, _ = engine_for(server)
    codec = ChatCodec()
    context = list(codec.start(HELLO))
    async with engine:
        for observation in ("try again", "once more"):
            completion = await engine.generate(context, SAMPLING)
            context += completion.token_ids
            context += codec.follow_up(observation, ended=completion.token_ids[-1] in codec.stop_ids)
        last = await engine.generate(context, SAMPLING)
    assert codec.decode(last.token_ids) == "end"
    assert server.requests[2]["body"]["messages"] == [
        *HELLO,
        {"role": "assistant", "content": odd},
        {"role": "user", "content": "try again"},
        {"role": "assistant", "content": "cut off"},
        {"role": "user", "content": "once more"},
    ]
    assert completion.finish == "length"
    assert len(completion.token_ids) == len(completion.versions) == len(completion.logprobs) == len("cut off")
    assert all(math.isnan(logprob) for logprob in last.logprobs)
    assert last.token_ids[-1:] == codec.stop_ids


async def test_a_suite_evaluated_on_an_endpoint_that_stumbles(start: Start) -> None:
    """One garbage answer among four attempts: one unmeasured, and the rate is over the other three."""
    server = await start(reply("pass"), Answer(body="garbage"), reply("fail"), Answer(status=500), reply("pass"))
    engine, _ = engine_for(server)
    codec = ChatCodec()

    async def attempt(task: Task, sample: int) -> Attempt:
        prompt = codec.start([{"role": "user", "content": task.instruction}])
        completion = await engine.generate(prompt, SAMPLING)
        text = codec.decode(completion.token_ids)
        trajectory = Trajectory(
            id=task.id, group_id="g", task_id=task.id, family=task.family, steps=(), stop_reason="max_turns"
        )
        return Attempt(trajectory=trajectory, outcome=Measured(scores={}, reward=float(text == "pass")))

    tasks = [Task(id=f"f{i}/0", family=f"f{i}", instruction="do", entry_point="f") for i in range(4)]
    async with engine:
        result = await evaluate(
            tasks, attempt, suite="s", label="m", sampling=SAMPLING, samples_per_task=1, max_concurrent=1
        )
    assert (result.attempted, result.measured, result.passed) == (4, 3, 2)
    assert result.tasks[1].unmeasured[0].boundary == "engine"
    assert "garbage" in result.tasks[1].unmeasured[0].evidence


roles = st.sampled_from(["system", "user", "assistant"])


@given(st.lists(st.fixed_dictionaries({"role": roles, "content": st.text(st.characters())}), min_size=1))
def test_the_codec_loses_nothing(messages: list[dict[str, str]]) -> None:
    assert ChatCodec().messages(ChatCodec().start(messages)) == messages


def test_the_codec_refuses_what_it_did_not_write() -> None:
    codec = ChatCodec()
    with pytest.raises(ValueError, match="role must be one of"):
        codec.start([{"role": "tool", "content": "x"}])
    for ids in ((), (72, 105), codec.start(HELLO)[:-1], codec.start(HELLO)[1:]):
        with pytest.raises(ValueError, match="starts with a role"):
            codec.messages(ids)
