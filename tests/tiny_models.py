"""Tiny randomly initialised language models as Hugging Face folders. Not trained, yet complete."""

import functools
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

VOCAB_SIZE = 320  # not a multiple of the sampler's block
MAX_POSITIONS = 256
_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "initializer_range": 0.3,  # sharp distributions, so that a wrong logit shows
}
CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**_SIZES, tie_word_embeddings=True),
    "llama-scaled-rope": LlamaConfig(
        **_SIZES, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}, attention_bias=True
    ),
    "mistral": MistralConfig(**_SIZES, sliding_window=24),
    "qwen2": Qwen2Config(**_SIZES),
    "qwen3": Qwen3Config(**_SIZES, head_dim=16),
    "gpt2": GPT2Config(vocab_size=VOCAB_SIZE, n_embd=32, n_layer=3, n_head=4, n_positions=MAX_POSITIONS,
                       bos_token_id=0, eos_token_id=1, initializer_range=0.3),
    "gemma2": Gemma2Config(**_SIZES, head_dim=8),
}  # fmt: skip


def save_tiny_model(kind: str, folder: Path, *, seed: int = 0, with_tokenizer: bool = True) -> Path:
    """Writes the model `CONFIGS[kind]` with weights of one seed; the same seed gives the same weights."""
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(CONFIGS[kind], dtype=torch.float32).save_pretrained(folder)
    if with_tokenizer:
        byte_tokenizer().save_pretrained(folder)
    return folder


def byte_tokenizer() -> Any:
    """One token per byte (ids from 2), no merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1} | {char: index for index, char in enumerate(alphabet, start=2)}
    vocabulary |= {f"<unused{index}>": index for index in range(len(vocabulary), VOCAB_SIZE)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


@functools.lru_cache(maxsize=4)
def _plain_model(folder: Path, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def plain_logprobs(folder: Path, ids: list[int], *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[N, V] fp32: what transformers' own forward pass says of each next token."""
    with torch.inference_mode():
        logits: torch.Tensor = _plain_model(folder, dtype)(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return logits.float().log_softmax(dim=-1)
