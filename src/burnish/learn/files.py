"""Model folders that the learner writes: published weights and checkpoints. Both load with `from_pretrained`.

A folder is written in place; that nobody sees it half-written is the caller's business (`weights.publish`).

    published:   config.json, model.safetensors (working dtype), tokenizer files
    checkpoint:  the same with float32 master weights, plus optimizer.safetensors and learner.json
"""

import copy
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from burnish.errors import StoreError, boundary
from burnish.learn.optimizer import MasterOptimizer
from burnish.learn.policy import Policy

WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "learner.json"
# Everything that turns text into ids and back, copied byte for byte: a tokenizer that went through a load and a save
# may differ from the one that rollouts use.
COMPANIONS = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def write_published(path: Path, policy: Policy, model_dir: Path) -> None:
    """Raises StoreError when the folder cannot be written."""
    with boundary(StoreError, during=f"publish weights to {path}"):
        _write_model(path, policy, model_dir, _unique_tensors(policy.model.state_dict()))


def write_checkpoint(path: Path, policy: Policy, optimizer: MasterOptimizer, version: int, model_dir: Path) -> None:
    """Raises StoreError when the folder cannot be written."""
    tensors = _unique_tensors(policy.model.state_dict())
    tensors.update({name: weight.detach() for name, weight in optimizer.master.items()})
    with boundary(StoreError, during=f"write checkpoint to {path}"):
        _write_model(path, policy, model_dir, tensors)
        save_file(optimizer.moments(), path / MOMENTS)
        (path / STATE).write_text(json.dumps({"version": version}) + "\n")


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], int]:
    """Weights, moments and version. Raises StoreError when something is missing or torn."""
    with boundary(StoreError, during=f"read checkpoint {path}"):
        version = json.loads((path / STATE).read_text())["version"]
        return load_file(path / WEIGHTS), load_file(path / MOMENTS), int(version)


def _write_model(path: Path, policy: Policy, model_dir: Path, tensors: dict[str, Tensor]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, path / WEIGHTS, metadata={"format": "pt"}
    )
    config: Any = copy.deepcopy(policy.model.config)
    config.dtype = next(iter(tensors.values())).dtype
    config.save_pretrained(path)
    for name in COMPANIONS:
        if (model_dir / name).is_file():
            shutil.copyfile(model_dir / name, path / name)


def _unique_tensors(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tied weights once, under their first name: safetensors refuses shared memory, `from_pretrained` ties again."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in state.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            unique[name] = tensor
    return unique
