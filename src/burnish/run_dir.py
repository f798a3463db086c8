"""The folder of a run: what is in it, who may write it, and what a resume trusts.

RUN/config.yaml        the resolved recipe
RUN/run.json           name, seed, digest, version
RUN/events.jsonl       what happened; the truth of every report
RUN/journal/           every attempt and every step of it, see flow/journal.py
RUN/manifests/         the commits, see flow/manifest.py; the one thing a resume trusts
RUN/snapshots/         sandboxes of attempts under way, to go on in after a crash
RUN/checkpoints/       step-000010/: Hugging Face weights (fp32) and optimizer state
RUN/weights/           v000012/: published versions for the engine, the newest few
RUN/logs/              of engine and learner; sandbox-audit.jsonl: what every sandbox was asked to do, chained
RUN/eval-before.json, eval-after.json, summary.json, report.html
RUN/model/             the trained model, as a Hugging Face folder

journal, manifests and snapshots are an object store's: with `store` they lie there, under the run's name.
"""

import fcntl
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from burnish import __version__
from burnish.config import RESOLVED_FILE, RunConfig, config_digest, diff_configs, resolved_yaml
from burnish.config_load import load_config
from burnish.errors import StoreError, UserError, boundary
from burnish.files import write_whole
from burnish.store import RunStore


class RunDir:
    """A run directory, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = path / "events.jsonl"
        self.checkpoints = path / "checkpoints"
        self.weights = path / "weights"
        self.logs = path / "logs"
        self.model = path / "model"
        with boundary(StoreError, during=f"open {path}"):
            self._lock = (path / "lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise UserError("another process is working in this run directory", where=str(path)) from None

    @classmethod
    def create(cls, config: RunConfig, path: Path | None) -> Self:
        """A new run. `path` None makes a fresh name under `config.runs_dir`.

        Raises UserError when `path` is a run already, StoreError when it cannot be written.
        """
        if path is None:
            path = _fresh_path(config)
        elif path.exists() and any(path.iterdir()):
            raise UserError("not empty", where=str(path), fix="give a new folder, or --resume to continue this run")
        with boundary(StoreError, during=f"create {path}"):
            path.mkdir(parents=True, exist_ok=True)
        run = cls(path)
        run.write_json(
            "run.json",
            {
                "name": config.name,
                "seed": config.seed,
                "digest": config_digest(config),
                "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "version": __version__,
            },
        )
        run.write_text(RESOLVED_FILE, resolved_yaml(config))
        with boundary(StoreError, during=f"create {path}"):
            run.logs.mkdir()
        return run

    @classmethod
    def reopen(cls, config: RunConfig, path: Path, *, force_config: bool) -> Self:
        """An existing run to continue.

        Raises UserError when it is none, or when its configuration differs and `force_config` is not set.
        """
        resolved = path / RESOLVED_FILE
        if not resolved.is_file():
            raise UserError("not a run directory: config.yaml is missing", where=str(path), fix="start a new run")
        different = diff_configs(load_config(resolved, []), config)
        if different and not force_config:
            raise UserError(
                "the run was begun with another configuration:\n  " + "\n  ".join(different),
                where=str(path),
                fix="use the configuration it was begun with, or --force-config to go on with this one",
            )
        run = cls(path)
        if different:
            run.write_text(RESOLVED_FILE, resolved_yaml(config))
        return run

    def open_store(self, url: str | None) -> RunStore:
        """Where journal, manifests and snapshots lie: in this folder, or at `url` under the run's name."""
        return RunStore.at(str(self.path) if url is None else f"{url.rstrip('/')}/{self.path.name}")

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(value, indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Replaces a file as a whole. Raises StoreError."""
        write_whole(self.path / name, text)

    def close(self) -> None:
        self._lock.close()


def _fresh_path(config: RunConfig) -> Path:
    stem = f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while (path := config.runs_dir / (stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return path
