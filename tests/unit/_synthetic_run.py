"""A run that never happened, with a deterministic seed: events of every kind, and a run directory around them."""

import json
from pathlib import Path
from random import Random
from typing import Any

from burnish.observe.emit import Event
from burnish.observe.events import EventLog

T0 = 1_760_000_000.0
FAMILIES = ("count_matching", "reverse_words", "merge_dicts", "parse_pairs", "fibonacci", "fix_off_by_one")
BANDS = ("easy", "easy", "medium", "medium", "hard", "hard")
HOSTILE = "\x1b[31mred\x1b]0;title\x07 [bold]markup[/bold] <script>alert(1)</script> \u202eevil & more"
SAMPLE_TEXT = f"""[instruction]
Write a Python function `count_even(numbers)` that returns how many of the numbers are even.

[answer 1]
```python
def count_even(numbers):
    return sum(1 for n in numbers if n % 2)
```

[observation 1]
count_even([1, 2, 4]) gave 1, expected 2
{HOSTILE}

[answer 2]
```python
def count_even(numbers):
    return sum(1 for n in numbers if n % 2 == 0)
```

[observation 2]
all visible examples passed
"""


class SyntheticRun:
    """Makes events in order. Each method returns the events it added; `events` has all."""

    def __init__(self, *, num_steps: int = 40, seed: int = 7) -> None:
        self.rng = Random(seed)
        self.num_steps = num_steps
        self.t = T0
        self.events: list[Event] = []
        self.num_attempts = 0

    def add(self, event: str, *, after_s: float = 0.0, **fields: Any) -> None:
        self.t += after_s
        self.events.append({"event": event, "t": round(self.t, 4), **fields})

    def start(self) -> None:
        self.add(
            "run.start", run="quickstart-7", seed=7, digest="5f" * 32, num_steps=self.num_steps, time_limit_s=660.0,
            version="0.1.0", model="smollm2-135m-instruct",
        )  # fmt: skip
        self.add("phase", name="load")
        self.add("model.convert", model="smollm2-135m-instruct", path="/cache/smollm2", state="started", wall_s=None)

    def evaluate(self, label: str, passed: int, *, measured: int = 126, ci95: tuple[float, float] = (0.1, 0.2)) -> None:
        self.add("phase", after_s=3.0, name=f"eval_{label}")
        for done in (64, 128):
            self.add(
                "eval.progress", after_s=12.0, label=label, suite="builtin:heldout", done=done, total=128,
                passed=passed * done // 128, measured=min(done, measured),
            )  # fmt: skip
        self.add(
            "eval.end", label=label, suite="builtin:heldout", attempted=128, measured=measured, passed=passed,
            pass_rate=passed / measured if measured else None, ci95=list(ci95) if measured else None,
        )  # fmt: skip

    def attempt(self, group: str, index: int, skill: float) -> None:
        family = self.rng.randrange(len(FAMILIES))
        self.num_attempts += 1
        broken = self.num_attempts % 97 == 0
        passed = self.rng.random() < skill - 0.12 * (family // 2)
        cause = "create: OSError: [Errno 28] No space left on device"
        if broken:
            self.add(
                "attempt.retry", id=f"{group}.{index}", task_id=f"{FAMILIES[family]}/0", boundary="sandbox",
                cause=cause, retry=1,
            )  # fmt: skip
            self.add("group.refill", group_id=group, id=f"{group}.{index}", cause=cause)
        stop = "failed" if broken else "passed_visible" if passed else self.rng.choice(["max_turns", "no_action"])
        self.add(
            "attempt.end", id=f"{group}.{index}", group_id=group, task_id=f"{FAMILIES[family]}/0",
            family=FAMILIES[family], band=BANDS[family], stop_reason=stop,
            reward=None if broken else float(passed), boundary="sandbox" if broken else None,
            cause=cause if broken else None, num_turns=1 + (not passed), num_tokens=self.rng.randint(30, 140),
            generate_s=4.1, act_s=0.05, grade_s=0.08, wall_s=4.4, passed=None if broken else passed,
        )  # fmt: skip

    def step(self, step: int) -> None:
        rng, progress = self.rng, step / self.num_steps
        skill = 0.2 + 0.5 * progress
        for group in range(6):
            for index in range(8):
                self.attempt(f"g{step}-{group}", index, skill)
        if rng.random() < 0.4:
            self.add("drop", reason="no_signal", num=8, group_id=f"g{step}-0")
        if step % 13 == 0:
            self.add("drop", reason="too_few_measured", num=8, group_id=f"g{step}-1")
        if step == 9:
            self.add("starved", num_groups=6, version=8)
            self.add("attempt.recut", id=f"g{step}-0.1", version=9)
            self.add("watchdog", watched="engine", cause="3 requests and no token for 120 s", action="kill")
            self.add("run.life", boundary="learner", cause="worker process died", step=step)
            self.add("task.quarantine", task_id="t/9", num=16, boundary="sandbox", cause="died")
            self.add("journal.cut", segment="journal/00000042.seg")
        self.add(
            "engine.stats",
            running=31,
            waiting=4,
            num_generated_tokens=4000 * step,
            tokens_per_s=410.5,
            queue_s=0.2,
            kv_use=None,
        )
        self.add("sandbox.retry", cause="create: no sandbox within 20 s", retry=1)
        self.add("sandbox.create", id=f"s{step}")
        self.add("sandbox.expire", id=f"s{step - 8}", clock="ttl_s", limit_s=600.0)
        self.add("sandbox.unlisted", cause="Permission denied")
        self.add("sandbox.kill", id=f"s{step - 8}")
        self.add("sandbox.squash", num_layers=41, cause="")
        reward = skill + rng.gauss(0, 0.07)
        rollout_s, learn_s = 9.5 + rng.random() * 3, 5.5 + rng.random()
        wall_s = rollout_s + learn_s + 0.9
        self.add(
            "step.end", after_s=wall_s, step=step, version=step, num_groups=6, num_trajectories=48, num_tokens=4100,
            reward_mean=round(reward, 4), reward_std=0.44, pass_rate=round(min(1.0, max(0.0, reward - 0.05)), 4),
            length_mean=88.0 - 20 * progress + rng.gauss(0, 4), turns_mean=1.8 - 0.4 * progress,
            loss=rng.gauss(0, 0.02), grad_norm=0.9 + rng.random() * 0.3, entropy=0.62 - 0.2 * progress,
            logprob_gap_mean=0.004 + rng.random() * 0.001, logprob_gap_max=0.09 + rng.random() * 0.08, ratio_max=1.17,
            clip_fraction=0.004, lag_max=0, rollout_s=rollout_s, learn_s=learn_s, publish_s=0.5, wait_s=0.4,
            wall_s=wall_s, tokens_per_s=4100 / wall_s, lr=2e-5,
        )  # fmt: skip
        self.add("publish", version=step, wall_s=0.5)
        if step == 17:
            self.add("engine.restart", cause="worker process died: killed by signal 9", version=17)
        if step % 10 == 0:
            self.add("checkpoint", step=step, path=f"checkpoints/step-{step:05d}", wall_s=1.2)
        for kind, reward in (("best", 1.0), ("worst", 0.0)):
            self.add("sample", step=step, kind=kind, task_id="count_matching/0", reward=reward, text=SAMPLE_TEXT)

    def end(self, reason: str = "completed", cause: str | None = None) -> None:
        self.add("phase", name="report")
        last = max((event["step"] for event in self.events if event["event"] == "step.end"), default=0)
        self.add("run.end", after_s=0.5, reason=reason, cause=cause, step=last, wall_s=round(self.t - T0, 1))


def finished_run(*, num_steps: int = 40, seed: int = 7) -> SyntheticRun:
    """A whole run that got better: 19 of 126 before, 66 of 126 after."""
    run = SyntheticRun(num_steps=num_steps, seed=seed)
    run.start()
    run.evaluate("before", 19, ci95=(0.097, 0.223))
    run.add("phase", name="train")
    for step in range(1, num_steps + 1):
        run.step(step)
    run.evaluate("after", 66, ci95=(0.437, 0.609))
    run.end()
    return run


def write_run_directory(run_dir: Path, run: SyntheticRun, *, final: dict[str, Any] | None = None) -> Path:
    """The files of a run directory that observe/ reads."""
    run_dir.mkdir(parents=True)
    (run_dir / "config.yaml").write_text("name: quickstart\nseed: 7\nlearner:\n  lr: 2.0e-05\n")
    about = {"digest": "5f" * 32, "seed": 7, "name": "quickstart", "created": "2026-01-05T10:00:00Z"}
    (run_dir / "run.json").write_text(json.dumps({**about, "version": "0.1.0"}))
    with EventLog(run_dir / "events.jsonl") as log:
        for event in run.events:
            log(event)
    if final is not None:
        (run_dir / "summary.json").write_text(json.dumps(final))
    return run_dir


FINAL: dict[str, Any] = {
    "pass_rate_before": 19 / 126, "pass_rate_after": 66 / 126, "diff_ci95": [0.27, 0.47], "attempted": 256,
    "measured": 252, "num_steps": 40, "wall_s": 640.0, "seed": 7,
}  # fmt: skip
