"""The model that is trained: loading it, and its hidden states over a forest.

Legend: `L` tokens of the forest, `E` hidden size, `V` vocabulary.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from burnish.learn import attention
from burnish.learn.forest import Forest, plant
from burnish.learn.head import token_logprobs
from burnish.types import PackedRow

# Largest difference in nats between our forward pass and the model's own, in float32. Rounding gives about 1e-5; a
# missing soft cap or scale, or a mask that a layer does not follow, gives whole nats.
SELF_CHECK_TOLERANCE = 1e-2


class Policy:
    """A transformers causal language model whose attention runs over forests."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def vocab_size(self) -> int:
        return int(self.model.get_input_embeddings().weight.shape[0])

    @property
    def head_VE(self) -> Tensor:  # noqa: N802
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight

    @property
    def device(self) -> torch.device:
        device: torch.device = self.head_VE.device
        return device

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Trainable parameters by name; tied ones once."""
        return dict(self.model.named_parameters())

    def hidden(self, forest: Forest) -> Tensor:
        """`[L, E]` last hidden states, after the final norm."""
        output = self.model.base_model(
            input_ids=forest.ids_L.unsqueeze(0),
            position_ids=forest.positions_L.unsqueeze(0),
            use_cache=False,
            forest=forest,
        )
        hidden_LE: Tensor = output.last_hidden_state.squeeze(0)
        return hidden_LE


def load_policy(path: Path, *, device: str = "cpu") -> Policy:
    """Loads a Hugging Face model directory in float32, without dropout. `MasterOptimizer` makes the working copy.

    Raises ValueError when the architecture cannot run on forests (found by comparing with the model's own attention).
    """
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    model.to(device).eval()  # eval: the engine samples without dropout, so the learner computes without it
    policy = Policy(model)
    _self_check(policy)
    return policy


def _self_check(policy: Policy) -> None:
    """A prompt with two continuations, once as a tree and once as two sequences under the model's own attention."""
    size = policy.vocab_size
    prompt, branches = [1 % size, 5 % size, 11 % size], ([7 % size, 3 % size], [2 % size, 9 % size])
    row = PackedRow(
        ids=(*prompt, *branches[0], *branches[1]),
        positions=(0, 1, 2, 3, 4, 3, 4),
        segments=(0, 0, 0, 1, 1, 2, 2),
        segment_parents=(-1, 0, 0),
        predecessors=(-1, 0, 1, 2, 3, 2, 5),
        loss_mask=(False,) * 3 + (True,) * 4,
        logprobs=(0.0,) * 7,
        versions=(-1,) * 3 + (0,) * 4,
        advantages=(0.0,) * 7,
    )
    with torch.no_grad():
        expected = []
        for branch in branches:
            ids = torch.tensor([prompt + branch], device=policy.device)
            logprob_TV = policy.model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
            expected += [logprob_TV[len(prompt) - 1 + i, token] for i, token in enumerate(branch)]
        policy.model.set_attn_implementation(attention.NAME)
        try:
            forest = plant([row], [[0.0] * 7], [0], newest=0, device=policy.device)
            hidden_NE = policy.hidden(forest)[forest.predecessor_N]
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{policy.model.config.model_type} models cannot run on packed trees: {error}") from error
        logp_N, _ = token_logprobs(hidden_NE, policy.head_VE, forest.target_N, temperature=1.0)
    gap = float((logp_N - torch.stack(expected)).abs().max())
    if not gap <= SELF_CHECK_TOLERANCE:
        raise ValueError(
            f"{policy.model.config.model_type} models cannot run on packed trees: logprobs are off by {gap:.3g}"
        )
