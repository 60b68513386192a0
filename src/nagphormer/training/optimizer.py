"""AdamW by torch's fused kernel, without the class in `torch.optim`.

That class loads torch's compiler the first time it is used, two to six seconds of every start, and nothing here is
compiled by it.
"""

from collections.abc import Iterable
from typing import Any

import torch

BETAS, EPSILON = (0.9, 0.999), 1e-8


class AdamW:
    """AdamW with one learning rate, which on a GPU lies there, so that captured steps read it."""

    def __init__(self, weights: Iterable[torch.nn.Parameter], weight_decay: float):
        self.weights = list(weights)
        self.weight_decay = weight_decay
        device = self.weights[0].device
        self._rate = torch.zeros((), device=device, dtype=torch.float64 if device.type == "cpu" else torch.float32)
        zero = torch.zeros((), device=device)
        self.state = [
            {"step": zero.clone(), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
            for weight in self.weights
        ]

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next step."""
        self._rate.fill_(rate)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        used = [number for number, weight in enumerate(self.weights) if weight.grad is not None]
        steps = [self.state[number]["step"] for number in used]
        torch._foreach_add_(steps, 1)
        gradients: Any = [self.weights[number].grad for number in used]
        torch._fused_adamw_(
            [self.weights[number] for number in used],
            gradients,
            [self.state[number]["exp_avg"] for number in used],
            [self.state[number]["exp_avg_sq"] for number in used],
            [],
            steps,
            lr=self._rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=self.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All state, by the number of the weight."""
        return {f"{number}.{name}": tensor for number, state in enumerate(self.state) for name, tensor in state.items()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take up what `state_dict` gave."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(tensors[name])
