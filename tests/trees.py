"""Packed trees by hand, and a model small enough to train in a test. Shared by the learner's tests."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from burnish.types import Batch, PackedRow

VOCAB = 61


@dataclass(frozen=True, kw_only=True)
class Node:
    """One segment and what follows it."""

    ids: tuple[int, ...]
    children: tuple["Node", ...] = ()
    trained: bool = True
    advantage: float = 1.0
    logprob: float = -2.0
    version: int = 0


def pack(*roots: Node) -> PackedRow:
    """The row of some trees, parents before children. A root's first token is never trained."""
    columns: list[tuple[int, int, int, int, bool, float, int, float]] = []
    parents: list[int] = []
    waiting = [(root, -1, -1, 0) for root in roots]
    while waiting:
        node, parent, last, depth = waiting.pop(0)
        segment = len(parents)
        parents.append(parent)
        for token in node.ids:
            trained = node.trained and last >= 0
            marks = (True, node.logprob, node.version, node.advantage) if trained else (False, 0.0, -1, 0.0)
            columns.append((token, depth, segment, last, *marks))
            last, depth = len(columns) - 1, depth + 1
        waiting += [(child, segment, last, depth) for child in node.children]
    ids, positions, segments, predecessors, loss_mask, logprobs, versions, advantages = zip(*columns, strict=True)
    return PackedRow(
        ids=ids,
        positions=positions,
        segments=segments,
        segment_parents=tuple(parents),
        predecessors=predecessors,
        loss_mask=loss_mask,
        logprobs=logprobs,
        versions=versions,
        advantages=advantages,
    )


def fork(prompt: Sequence[int], *answers: tuple[int, ...], version: int = 0) -> PackedRow:
    """A prompt with answers whose advantages alternate in sign."""
    children = tuple(
        Node(ids=answer, advantage=1.0 if i % 2 == 0 else -0.5, logprob=-4.0, version=version)
        for i, answer in enumerate(answers)
    )
    return pack(Node(ids=tuple(prompt), trained=False, children=children))


def batch_of(*rows: PackedRow, step: int = 0, temperature: float = 1.0) -> Batch:
    return Batch(step=step, rows=rows, temperature=temperature, trajectory_ids=("g.0",), group_ids=("g",))


def told(row: PackedRow, logprobs: Sequence[float]) -> PackedRow:
    """The row with these behaviour logprobs on its loss tokens, in order."""
    values = iter(logprobs)
    return dataclasses.replace(row, logprobs=tuple(next(values) if trained else 0.0 for trained in row.loss_mask))


def path_to(row: PackedRow, token: int) -> list[int]:
    """Token indices from the root to `token`, by predecessors."""
    path = [token]
    while row.predecessors[path[-1]] >= 0:
        path.append(row.predecessors[path[-1]])
    return path[::-1]


def tiny_model(folder: Path) -> Path:
    """A random Llama with grouped key heads and tied embeddings, saved as a Hugging Face model directory."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, tie_word_embeddings=True, initializer_range=0.3, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
