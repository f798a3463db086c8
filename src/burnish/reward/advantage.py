"""Advantages inside a group: how much better an attempt was than its siblings. Pure functions over rewards.

Unmeasured attempts are not passed in at all: they get no advantage and are no part of any baseline (I1).
"""

import math
from collections.abc import Sequence
from typing import Literal

Estimator = Literal["grpo", "dr_grpo", "rloo"]
EPS = 1e-6  # only keeps a division finite; a group with no spread is dropped before it could matter


def advantages(rewards: Sequence[float], /, *, estimator: Estimator) -> tuple[float, ...] | None:
    """One advantage per reward, or None when the group carries no signal.

    - grpo: (R_i - mean) / (std + eps), the population std (Shao et al. 2024, arXiv:2402.03300, section 4.1.2)
    - dr_grpo: R_i - mean (Liu et al. 2025, arXiv:2503.20783: dividing by the std weighs easy and hard tasks up)
    - rloo: R_i - mean of the others (Ahmadian et al. 2024, arXiv:2402.14740)

    None for fewer than two rewards or all equal ones: every advantage would be zero, the tokens would only cost time.

    Raises:
        ValueError: a reward is not finite.
    """
    if not all(map(math.isfinite, rewards)):
        raise ValueError(f"rewards must be finite, got {list(rewards)}")
    num = len(rewards)
    if num < 2 or max(rewards) == min(rewards):
        return None
    mean = math.fsum(rewards) / num
    centred = [reward - mean for reward in rewards]
    if estimator == "dr_grpo":
        return tuple(centred)
    if estimator == "rloo":
        return tuple(value * num / (num - 1) for value in centred)
    std = math.sqrt(math.fsum(value * value for value in centred) / num)
    return tuple(value / (std + EPS) for value in centred)
