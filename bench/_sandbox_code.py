"""The row about `run_code`: an interpreter that waited, beside one that is started."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from _sandbox_figures import Figures, Turn, p50, since_ms, take_turns
from _sandbox_state import new_backend

_START_S = 0.15  # until the next one waits
_CODE = "pass"


async def code_row(figures: Figures, *, quick: bool) -> None:
    """`run_code` against `python3 -c`, with time to think between calls, as a model takes it."""
    async with new_backend() as backend, await backend.create() as box, await backend.create() as other:

        async def code() -> Mapping[str, float]:
            wall_ms = await _timed(box.commands.run_code("python", _CODE))
            await asyncio.sleep(_START_S)
            return {"run_code": wall_ms}

        async def command() -> Mapping[str, float]:
            return {"python3_c": await _timed(other.commands.run(["python3", "-c", _CODE]))}

        async def isolated() -> Mapping[str, float]:
            return {"python3_I_c": await _timed(other.commands.run(["python3", "-I", "-c", _CODE]))}

        turns = [Turn(run=code), Turn(run=command), Turn(run=isolated)]
        await take_turns(turns, num_rounds=2)  # warm-up
        found = await take_turns(turns, num_rounds=20 if quick else 200)
    for name in ("run_code", "python3_c", "python3_I_c"):
        figures.samples(name, found[name])
    figures.value("run_code_over_python3_I_c", p50(found["run_code"]) / p50(found["python3_I_c"]), "x")


async def _timed(call: Any) -> float:
    start_s = time.perf_counter()
    result = await call
    assert result.ok, result
    return since_ms(start_s)
