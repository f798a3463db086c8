"""A Hugging Face causal LM, made ready to decode: loaded, checked, its weights replaceable in place."""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging as hf_logging

from burnish.engine.local.attention import ATTENTION_NAME, LayerShape, ShapeProbe, UnsupportedModel, attending
from burnish.errors import UserError


class LocalModel:
    """The module and what the engine needs to know about it."""

    def __init__(self, module: Any, *, device: str) -> None:
        """Raises UnsupportedModel."""
        if "logits_to_keep" not in inspect.signature(module.forward).parameters:
            raise UnsupportedModel("its forward pass has no logits_to_keep")
        self._module = module
        self.device = device
        self.dtype: torch.dtype = module.dtype
        self.vocab_size: int = module.get_input_embeddings().weight.shape[0]
        self.max_positions: int | None = getattr(module.config, "max_position_embeddings", None)
        self.shapes = self._probe_shapes()

    def logits(self, ids_N: Tensor, positions_N: Tensor, keep_M: Tensor) -> Tensor:
        """One packed pass; logits [M, V] of the tokens at `keep_M` only. Attention is whoever is `attending`."""
        output = self._module(
            input_ids=ids_N[None], position_ids=positions_N[None], use_cache=False, logits_to_keep=keep_M
        )
        logits_MV: Tensor = output.logits[0]
        return logits_MV

    def update_weights(self, folder: Path) -> None:
        """Copies the safetensors of `folder` over the weights in place: all of them, or none when anything is amiss.

        Raises ValueError naming what does not fit; OSError or SafetensorError for unreadable files.
        """
        targets = dict(self._module.named_parameters(remove_duplicate=False)) | dict(self._module.named_buffers())
        files = sorted(folder.glob("*.safetensors"))
        shapes = _shapes_in(files)
        if not shapes:
            raise ValueError(f"no weights in {folder}")
        for name, shape in shapes.items():
            if name not in targets:
                raise ValueError(f"{folder} holds {name}, which the model does not have")
            if shape != targets[name].shape:
                raise ValueError(f"{name} has shape {tuple(shape)}, the model's is {tuple(targets[name].shape)}")
        given = {targets[name].data_ptr() for name in shapes}  # by storage: tied weights are saved under one name
        missing = [name for name, weight in self._module.named_parameters() if weight.data_ptr() not in given]
        if missing:
            raise ValueError(f"{folder} lacks {len(missing)} weights, the first is {missing[0]}")
        with torch.inference_mode():
            for file in files:
                with safe_open(file, framework="pt") as reader:
                    for name in reader.keys():  # noqa: SIM118 (a reader, not a dictionary)
                        targets[name].copy_(reader.get_tensor(name))

    def _probe_shapes(self) -> list[LayerShape]:
        probe = ShapeProbe()
        ids_N = torch.zeros(2, dtype=torch.long, device=self.device)
        with torch.inference_mode(), attending(probe):
            self.logits(ids_N, torch.arange(2, device=self.device), ids_N[:1])
        if sorted(probe.shapes) != list(range(self._module.config.num_hidden_layers)):
            raise UnsupportedModel(f"only the layers {sorted(probe.shapes)} use transformers' attention interface")
        shapes = [probe.shapes[layer] for layer in sorted(probe.shapes)]
        if len(set(shapes)) != 1:
            raise UnsupportedModel("its layers keep keys and values of different shapes")
        return shapes


def load_model(model_dir: Path, *, dtype: torch.dtype, device: str) -> LocalModel:
    """Loads a Hugging Face folder.

    Raises UserError when transformers cannot load it, or when this engine cannot serve its architecture.
    """
    try:
        with _quiet():
            module = AutoModelForCausalLM.from_pretrained(
                model_dir, dtype=dtype, attn_implementation=ATTENTION_NAME, local_files_only=True
            )
        module = module.to(device).eval().requires_grad_(False)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise UserError(
            f"the model does not load: {problem}", where=str(model_dir), fix="check the model folder"
        ) from problem
    try:
        return LocalModel(module, device=device)
    except UnsupportedModel as problem:
        raise UserError(
            f"the local engine cannot serve {type(module).__name__}: {problem}",
            where=str(model_dir),
            fix="use a model whose attention goes through transformers' attention interface, or an external engine",
        ) from problem


def _shapes_in(files: list[Path]) -> dict[str, torch.Size]:
    """Weight name -> shape, from the headers alone."""
    shapes = {}
    for file in files:
        with safe_open(file, framework="pt") as reader:
            for name in reader.keys():  # noqa: SIM118 (a reader, not a dictionary)
                shapes[name] = torch.Size(reader.get_slice(name).get_shape())
    return shapes


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading without progress bars and notes; what goes wrong is raised."""
    before = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(before[0])
        if before[1]:
            hf_logging.enable_progress_bar()
