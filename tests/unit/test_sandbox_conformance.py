"""The suite itself: it tells a liar from an honest backend."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from burnish.errors import SandboxError
from burnish.sandbox.base import CAPABILITIES, ExecResult, SandboxFileError
from burnish.sandbox.conformance import CHECKS, Check, CheckResult, run_check, run_conformance, suite
from burnish.sandbox.memory import MemoryBackend, MemoryCall, MemoryReply


def named(results: list[CheckResult]) -> Mapping[str, CheckResult]:
    return {result.name: result for result in results}


async def test_a_backend_is_held_against_what_it_declares() -> None:
    results = await run_conformance(MemoryBackend)
    assert len(results) == len(CHECKS) >= 35
    assert [result for result in results if result.status == "failed"] == []
    skipped = {result.reason for result in results if result.status == "skipped"}
    assert skipped and all(reason.startswith("not declared: ") for reason in skipped)
    assert named(results)["a_timeout_is_a_result"].status == "passed"
    assert named(results)["nothing_outside_can_be_reached"].status == "skipped"


async def test_a_liar_is_found() -> None:
    def cat(call: MemoryCall) -> MemoryReply:
        return MemoryReply(stdout=call.stdin[:100])

    results = named(await run_conformance(lambda: MemoryBackend(commands={"cat": cat})))
    assert results["stdin_arrives_as_it_is"].status == "failed"
    assert "8192 bytes went in, 100 came out" in results["stdin_arrives_as_it_is"].reason
    assert results["no_stdin_is_end_of_file"].status == "passed"


def test_checks_are_named_explained_and_need_known_things() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.meaning.endswith(".") and set(check.needs) <= CAPABILITIES.keys()


async def test_failures_of_the_sandbox_are_failed_checks() -> None:
    async def dies(bench: suite.Bench) -> None:
        raise SandboxError("host died", evidence="signal 9")

    async def refuses(bench: suite.Bench) -> None:
        raise SandboxFileError("a", "no")

    backend = MemoryBackend()
    reasons = []
    for run in (dies, refuses):
        check = Check(name="x", meaning="x.", needs=(), run=run)
        result = await run_check(check, backend, frozenset())
        assert result.status == "failed"
        reasons.append(result.reason)
    assert reasons == ["sandbox: host died signal 9", "a file was refused: a: no"]


async def test_a_check_that_hangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(bench: suite.Bench) -> None:
        await asyncio.sleep(3600)

    check = Check(name="x", meaning="x.", needs=(), run=hangs)
    monkeypatch.setattr(suite, "CHECK_S", 0.01)
    result = await run_check(check, MemoryBackend(), frozenset())
    assert result.status == "failed" and "did not end" in result.reason


def test_a_result_for_a_message_is_short() -> None:
    words: Sequence[bytes] = (b"x" * 5000, b"y" * 5000)
    result = ExecResult(
        exit_code=1, signal=None, stdout=words[0], stderr=words[1], timed_out=False, limit_hit=None, wall_s=0.0,
        dropped_bytes=0,
    )  # fmt: skip
    assert len(suite.tail(result)) < 500
