"""One optimizer step: batch in, new weights and metrics out.

Legend: `L` tokens of a forest, `N` its loss tokens, `E` hidden size.
"""

import math
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from burnish.config import LearnerConfig
from burnish.learn.admission import check_batch
from burnish.learn.codec import StepMetrics
from burnish.learn.forest import Forest, micro_batches, plant
from burnish.learn.head import token_logprobs
from burnish.learn.loss import Clip, clipped_policy_loss, importance_ratio, token_weights
from burnish.learn.optimizer import MasterOptimizer
from burnish.learn.policy import Policy
from burnish.types import Batch

MICRO_BATCH_TOKENS = 2048  # activations are about 1 MB a token for a 135M model
HEAD_CHUNK = 1024  # loss tokens whose logits exist at one time: 100 MB in bf16 for a vocabulary of 49152


@dataclass
class _Tally:
    """Per-token figures of the micro-batches, joined at the end."""

    loss: float = 0.0
    logp: list[Tensor] = field(default_factory=list)
    behaviour: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)
    clipped: list[Tensor] = field(default_factory=list)
    newest: list[Tensor] = field(default_factory=list)


class Trainer:
    """Policy, optimizer and the version they are at. Not safe for concurrent use."""

    def __init__(
        self, policy: Policy, config: LearnerConfig, *, dtype: torch.dtype, max_lag: int, version: int = 0
    ) -> None:
        self.policy = policy
        self.optimizer = MasterOptimizer(policy.parameters(), config, working_dtype=dtype)
        self.version = version
        self._config = config
        self._max_lag = max_lag
        self._clip = Clip(low=config.clip_low, high=config.clip_high, cap=config.importance_cap)

    def step(self, batch: Batch) -> StepMetrics:
        """Takes one optimizer step and advances the version.

        Raises ValueError for a batch that must not be trained (see `check_batch`), FloatingPointError for a logprob,
        loss or gradient that is not finite. Weights, moments and version are then as before.
        """
        check_batch(batch, version=self.version, max_lag=self._max_lag, vocab_size=self.policy.vocab_size)
        began = time.perf_counter()
        weights = token_weights(batch.rows, self._config.loss_norm)
        newest = max(v for row in batch.rows for v, trained in zip(row.versions, row.loss_mask, strict=True) if trained)
        tally = _Tally()
        try:
            for numbers in micro_batches(batch.rows, MICRO_BATCH_TOKENS):
                forest = plant(batch.rows, weights, numbers, newest=newest, device=self.policy.device)
                if forest.places:
                    self._accumulate(forest, batch.temperature, tally)
            learning_rate = self.optimizer.learning_rate(self.version)
            grad_norm = self.optimizer.step(self.version)
        finally:
            self.optimizer.zero_grad()
        self.version += 1
        return self._metrics(batch, tally, grad_norm, learning_rate, time.perf_counter() - began)

    def _accumulate(self, forest: Forest, temperature: float, tally: _Tally) -> None:
        """Adds the gradient of one micro-batch.

        The head runs chunk by chunk down to a gradient on the hidden states, so that logits of one chunk exist at a
        time and are never recomputed; then the trunk runs backward once.
        """
        hidden_LE = self.policy.hidden(forest)
        hidden_NE = hidden_LE[forest.predecessor_N]
        leaf_NE = hidden_NE.detach().requires_grad_()
        for start in range(0, len(forest.places), HEAD_CHUNK):
            chunk = slice(start, start + HEAD_CHUNK)
            logp, entropy = token_logprobs(
                leaf_NE[chunk], self.policy.head_VE, forest.target_N[chunk], temperature=temperature
            )
            _require_finite(logp, forest, start)
            behaviour = forest.behaviour_N[chunk]
            loss, clipped = clipped_policy_loss(
                logp, behaviour, forest.advantage_N[chunk], forest.weight_N[chunk], self._clip
            )
            tally.loss += loss.item()
            if not math.isfinite(tally.loss):
                raise FloatingPointError(f"the loss is {tally.loss} at step {self.version}")
            loss.backward()  # type: ignore[no-untyped-call]
            tally.logp.append(logp.detach())
            tally.behaviour.append(behaviour)
            tally.entropy.append(entropy)
            tally.clipped.append(clipped)
        tally.newest.append(forest.newest_N)
        hidden_NE.backward(leaf_NE.grad)  # type: ignore[no-untyped-call]

    def _metrics(
        self, batch: Batch, tally: _Tally, grad_norm: float, learning_rate: float, wall_s: float
    ) -> StepMetrics:
        logp, behaviour, newest = torch.cat(tally.logp), torch.cat(tally.behaviour), torch.cat(tally.newest)
        gap = (logp - behaviour).abs()[newest]
        ratio = importance_ratio(logp, behaviour)
        return StepMetrics(
            version=self.version,
            loss=tally.loss,
            grad_norm=grad_norm,
            learning_rate=learning_rate,
            entropy=float(torch.cat(tally.entropy).mean()),
            logprob_gap_mean=float(gap.mean()),
            logprob_gap_max=float(gap.max()),
            ratio_mean=float(ratio.mean()),
            ratio_max=float(ratio.max()),
            clip_fraction=float(torch.cat(tally.clipped).float().mean()),
            num_loss_tokens=len(logp),
            num_newest_tokens=len(gap),
            num_row_tokens=sum(len(row.ids) for row in batch.rows),
            wall_s=wall_s,
        )


def _require_finite(logp_N: Tensor, forest: Forest, start: int) -> None:
    bad = (~torch.isfinite(logp_N)).nonzero()
    if len(bad):
        row, token = forest.places[start + int(bad[0])]
        raise FloatingPointError(f"logprob is {logp_N[bad[0]].item()} at row {row}, token {token}")
