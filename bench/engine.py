"""Tokens a second of the local engine against `transformers.generate`: same process, model, prompts, dtype, new tokens.

    python bench/engine.py [--quick] [--model FOLDER_OR_NAME] [--dtype bfloat16]

Different prompts at 1, 8 and 32 sequences, then 4 groups of 8 that share a prompt, as in training. Neither side stops
early. The two alternate; a figure is the median over the rounds, and a speed-up the median of the rounds' ratios.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from burnish.engine.local.client import OMP_ENV

os.environ.update(OMP_ENV)  # before torch starts its threads: both sides run as the engine's process does

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from transformers.utils import logging as hf_logging  # noqa: E402

from _bench import Bench, alternate, median, spread  # noqa: E402
from burnish.engine.local.core import EngineCore  # noqa: E402
from burnish.engine.local.model import load_model  # noqa: E402
from burnish.types import Sampling  # noqa: E402
from burnish.weights.model_files import resolve_model  # noqa: E402

SPEEDUP_BAR = 1.3  # at BAR_SEQUENCES
BAR_SEQUENCES = 32
GROUP_SIZE = 8
SUBJECTS = (
    "returns the sum of a list of numbers", "reverses a string", "counts the vowels of a string",
    "returns the largest of three numbers", "checks whether a number is prime", "returns the n-th Fibonacci number",
    "removes duplicates from a list and keeps the order", "checks whether a string is a palindrome",
    "merges two sorted lists", "counts how often each word occurs in a text", "flattens a nested list",
    "converts Celsius to Fahrenheit", "returns the digits of a number in reverse order", "rotates a list by k places",
    "returns the factorial of n", "finds the second largest number of a list", "checks whether two words are anagrams",
    "returns the greatest common divisor of two numbers", "splits a list into chunks of size n",
    "returns the longest word of a sentence", "transposes a matrix", "counts the even numbers of a list",
    "returns the index of the first negative number, or -1", "capitalizes every word of a sentence",
    "returns the running totals of a list", "removes all spaces from a string", "computes the average of a list",
    "returns the words that are longer than n letters", "checks whether brackets are balanced",
    "adds two numbers given as strings of digits", "returns the keys of a dictionary sorted by value",
    "encodes a string by run lengths",
)  # fmt: skip


def chat_prompts(tokenizer: Any) -> list[list[int]]:
    """One small programming task each, as the chat template renders it."""
    prompts = []
    for number, subject in enumerate(SUBJECTS):
        content = f"Write a Python function `solve_{number}` that {subject}. Answer with one Python code block."
        message = [{"role": "user", "content": content}]
        prompts.append(
            tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=False)
        )
    return prompts


def run_transformers(model: Any, prompts: list[list[int]], num_new: int) -> float:
    """Tokens a second of one `generate` call on left-padded prompts."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    start_s = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=num_new, do_sample=True, temperature=1.0, top_k=0
        )
    wall_s = time.perf_counter() - start_s
    assert out.shape[1] == longest + num_new, "transformers stopped early"
    return len(prompts) * num_new / wall_s


def run_engine(core: EngineCore, prompts: list[list[int]], num_new: int) -> float:
    """Tokens a second of the engine on the same prompts, from the first request to the last token."""
    num_tokens = 0
    start_s = time.perf_counter()
    for number, prompt in enumerate(prompts):
        core.add(number, prompt, Sampling(max_new_tokens=num_new, seed=number))
    while core.busy:
        num_tokens += sum(len(finished.completion.token_ids) for finished in core.step())
    wall_s = time.perf_counter() - start_s
    assert num_tokens == len(prompts) * num_new, "the engine stopped early"
    return num_tokens / wall_s


def load_transformers(folder: Path, dtype: torch.dtype) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    model.generation_config.eos_token_id = None  # never stops early
    model.generation_config.pad_token_id = 0
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer tokens and rounds")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    options = parser.parse_args()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    folder, dtype = resolve_model(options.model), getattr(torch, options.dtype)
    num_new, num_rounds = (16, 3) if options.quick else (48, 5)
    prompts = chat_prompts(AutoTokenizer.from_pretrained(folder))
    theirs = load_transformers(folder, dtype)
    # Nothing is kept between the runs: each computes its prompts anew, as `generate` does.
    core = EngineCore(
        load_model(folder, dtype=dtype, device="cpu"), num_slots=BAR_SEQUENCES, max_context_tokens=512, num_kept=0
    )
    loads = {f"{count}": prompts[:count] for count in (1, 8, BAR_SEQUENCES)}
    num_groups = BAR_SEQUENCES // GROUP_SIZE
    loads[f"{num_groups}x{GROUP_SIZE}"] = [prompt for prompt in prompts[:num_groups] for _ in range(GROUP_SIZE)]
    bench = Bench("engine")
    for name, load in loads.items():
        runs = {
            "transformers": lambda load=load: run_transformers(theirs, load, num_new),
            "burnish": lambda load=load: run_engine(core, load, num_new),
        }
        alternate(runs, num_rounds=1)  # warm-up
        speeds = alternate(runs, num_rounds=num_rounds)
        for side, values in speeds.items():
            bench.report(f"{side}_tokens_per_s_{name}", median(values), "tokens/s")
            bench.report(f"{side}_spread_{name}", spread(values), "of the median")
        ratios = [ours / base for ours, base in zip(speeds["burnish"], speeds["transformers"], strict=True)]
        bench.report(f"speedup_{name}", median(ratios), "x", bar=SPEEDUP_BAR if name == f"{BAR_SEQUENCES}" else None)
    return bench.exit_code


if __name__ == "__main__":
    sys.exit(main())
