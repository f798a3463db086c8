"""A Hugging Face causal LM, made ready to decode: loaded, checked, its weights replaceable in place."""

import inspect
import logging
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

from burnish.engine.local.attention import (
    ATTENTION_NAME,
    Attend,
    KVCache,
    LayerCall,
    Pass,
    Probe,
    Segment,
    UnsupportedModel,
    attending,
)
from burnish.engine.local.decoder import FastDecoder, NotRecognised
from burnish.errors import UserError

log = logging.getLogger(__name__)

TRIAL_TOKENS = 16
TRIAL_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Mean absolute error of logits, in their standard deviations. Rounding in bfloat16 makes about 0.05 of it, a wrong
mask or rotary embedding about 1."""


class LocalModel:
    """A causal LM and the fastest way to run it that computes the same as its plain forward pass."""

    def __init__(self, module: Any, *, device: str) -> None:
        """Raises UnsupportedModel when the engine cannot reproduce the plain forward pass."""
        if "logits_to_keep" not in inspect.signature(module.forward).parameters:
            raise UnsupportedModel("its forward pass has no logits_to_keep")
        self._module = module
        self._fast: FastDecoder | None = None
        self.device = device
        self.dtype: torch.dtype = module.dtype
        self.vocab_size: int = module.get_input_embeddings().weight.shape[0]
        self.max_positions: int | None = getattr(module.config, "max_position_embeddings", None)
        self.num_layers: int = module.config.num_hidden_layers
        self._calls = self._probe()
        self.shape = self._calls[0].shape
        self._choose()

    @property
    def is_fast(self) -> bool:
        """Whether the model was recognised and runs without transformers' modules."""
        return self._fast is not None

    @torch.inference_mode()
    def logits(self, ids_N: Tensor, positions_N: Tensor, keep_M: Tensor, cache: Attend) -> Tensor:
        """One packed pass; logits [M, V] of the tokens at `keep_M` only."""
        if self._fast is not None and isinstance(cache, KVCache):
            return self._fast.logits(ids_N, positions_N, keep_M, cache)
        with attending(cache):
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

    def _probe(self) -> list[LayerCall]:
        """How each layer calls attention."""
        probe = Probe()
        ids_N = torch.zeros(2, dtype=torch.long, device=self.device)
        self.logits(ids_N, torch.arange(2, device=self.device), ids_N[:1], probe)
        if sorted(probe.calls) != list(range(self.num_layers)):
            raise UnsupportedModel(f"only the layers {sorted(probe.calls)} use transformers' attention interface")
        calls = [probe.calls[layer] for layer in range(self.num_layers)]
        if len({call.shape for call in calls}) != 1:
            raise UnsupportedModel("its layers keep keys and values of different shapes")
        return calls

    def _choose(self) -> None:
        """Tries the ways to run the model on a few tokens, the fastest first."""
        ids_N = torch.arange(TRIAL_TOKENS, device=self.device).mul_(7919).add_(13) % self.vocab_size
        plain_NV = self._plain_logits(ids_N)
        try:
            self._fast = FastDecoder(self._module, self._calls)
            if self._reproduces(plain_NV, ids_N):
                return
            log.info("%s looks like Llama but computes otherwise", type(self._module).__name__)
        except (NotRecognised, RuntimeError) as reason:  # RuntimeError: shapes that do not fit together
            log.info("%s runs on its own modules: %s", type(self._module).__name__, reason)
        self._fast = None
        if not self._reproduces(plain_NV, ids_N):
            raise UnsupportedModel("decoding token by token does not give the logits of its plain forward pass")

    @torch.inference_mode()
    def _plain_logits(self, ids_N: Tensor) -> Tensor:
        self._module.set_attn_implementation("eager")
        try:
            logits_NV: Tensor = self._module(input_ids=ids_N[None], use_cache=False).logits[0]
        finally:
            self._module.set_attn_implementation(ATTENTION_NAME)
        return logits_NV.float()

    def _reproduces(self, plain_NV: Tensor, ids_N: Tensor) -> bool:
        """Half of the tokens as a prompt, the others one by one, against the logits of one plain pass over all."""
        num_tokens, num_prompt = len(ids_N), len(ids_N) // 2
        cache = KVCache(
            self.shape, num_layers=self.num_layers, rows=1, capacity=num_tokens, dtype=self.dtype, device=self.device
        )
        prompt = Segment(row=0, start=0, length=num_prompt)
        passes = [Pass([], [prompt], capacity=num_tokens, device=self.device)]
        passes += [Pass([held], [], capacity=num_tokens, device=self.device) for held in range(num_prompt, num_tokens)]
        rows = []
        for step in passes:
            cache.current = step
            keep_M = torch.arange(len(step.positions_N), device=self.device)
            rows.append(self.logits(ids_N[step.positions_N], step.positions_N, keep_M, cache))
        error = (torch.cat(rows).float() - plain_NV).abs().mean() / plain_NV.std()
        return bool(error < TRIAL_TOLERANCE[self.dtype])


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
