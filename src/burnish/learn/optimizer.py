"""AdamW on float32 master weights, under a working copy in the model's dtype.

A bf16 weight has 8 bits of mantissa: an update of 2e-5 on a weight of 0.02 is below half a unit in the last place
and would round to nothing. So the optimizer owns float32 copies, and the model gets them rounded after every step.

Gradients are summed in float32 as well. Within one micro-batch autograd works in bf16, but a batch is the sum of many,
and a running bf16 sum loses every addend smaller than 1/256 of it.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from burnish.config import LearnerConfig

# Adding bf16 to float32 makes a float32 copy of the addend first; in blocks of this size it stays in a core's cache.
ADD_BLOCK = 1 << 18


class MasterOptimizer:
    """Owns master weights, their gradients and AdamW's moments. Adds up what `backward` calls produce.

    Takes float32 parameters and turns them into the working copy: same objects, new storage in `working_dtype`. With
    float32 as the working dtype a parameter is its own master and nothing is copied. Buffers are left alone, since
    rotary frequencies do not survive bf16.
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], config: LearnerConfig, *, working_dtype: torch.dtype
    ) -> None:
        self._config = config
        self._working = {name: p for name, p in parameters.items() if p.requires_grad}
        self.master = dict(self._working)
        if working_dtype != torch.float32:
            for name, parameter in self._working.items():
                self.master[name] = Parameter(parameter.data)
                parameter.data = parameter.data.to(working_dtype)
        self._optimizer = torch.optim.AdamW(
            self.master.values(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )
        for name, parameter in self._working.items():
            master = self.master[name]
            if master is not parameter:
                parameter.register_post_accumulate_grad_hook(_adding_to(master))  # type: ignore[no-untyped-call]

    def learning_rate(self, num_done: int) -> float:
        """Linear warmup: step `num_done` (0-based) uses (num_done + 1) / (warmup_steps + 1) of it, then all of it."""
        return self._config.lr * min(1.0, (num_done + 1) / (self._config.warmup_steps + 1))

    def step(self, num_done: int) -> float:
        """One AdamW update with gradients scaled down to `max_grad_norm`; returns the global norm before scaling.

        Raises FloatingPointError for a norm that is not finite; weights and moments are then untouched.
        """
        grads = [master.grad for master in self.master.values() if master.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))))
        if not math.isfinite(norm):
            culprit = next(n for n, p in self.master.items() if p.grad is not None and not p.grad.isfinite().all())
            raise FloatingPointError(f"the gradient's norm is {norm}; first in {culprit}")
        if norm > self._config.max_grad_norm:
            torch._foreach_mul_(grads, self._config.max_grad_norm / norm)
        self._optimizer.param_groups[0]["lr"] = self.learning_rate(num_done)
        self._optimizer.step()
        self.sync_working()
        return norm

    def zero_grad(self) -> None:
        """Forgets gradients; keeps their float32 buffers, which the next step needs again."""
        for master in self.master.values():
            if master.grad is not None:
                master.grad.zero_()
        for parameter in self._working.values():
            if parameter.dtype != torch.float32:
                parameter.grad = None

    @torch.no_grad()
    def sync_working(self) -> None:
        """Rounds the master weights into the working copy."""
        for name, parameter in self._working.items():
            if parameter is not self.master[name]:
                parameter.copy_(self.master[name])

    def moments(self) -> dict[str, Tensor]:
        """AdamW's state: `exp_avg.NAME`, `exp_avg_sq.NAME`, `step.NAME`. Empty before the first step."""
        state = self._optimizer.state
        return {f"{key}.{name}": value for name, p in self.master.items() for key, value in state.get(p, {}).items()}

    @torch.no_grad()
    def restore(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Takes float32 weights and `moments` as `moments()` gave them.

        Raises KeyError naming a tensor that is missing; nothing is changed then.
        """
        chosen = {name: weights[name] for name in self.master}
        state = {}
        if moments:
            keys = ("step", "exp_avg", "exp_avg_sq")
            state = {name: {key: moments[f"{key}.{name}"] for key in keys} for name in self.master}
        for name, master in self.master.items():
            master.copy_(chosen[name])
        self._optimizer.state.clear()
        for name, values in state.items():
            self._optimizer.state[self.master[name]] = values
        self.sync_working()


def _adding_to(master: Parameter) -> Callable[[Tensor], None]:
    """A hook that moves a working gradient into the master's float32 sum as soon as autograd has it."""

    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        if master.grad is None:
            master.grad = parameter.grad.float()
        else:
            blocks = (torch.split(x.flatten(), ADD_BLOCK) for x in (master.grad, parameter.grad))
            for total, addend in zip(*blocks, strict=True):
                total.add_(addend)
        parameter.grad = None

    return hook
