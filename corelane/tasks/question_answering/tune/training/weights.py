"""The fp32 weights that are trained, and their moving average. The network computes with rounded copies of them.

A step in bf16 alone would be lost: near 1 the next number that bf16 holds is 0.8 % away. All weights lie in two flat
tensors, one with weight decay and one without, so that a step is a few passes over memory.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from corelane.errors import SetupError
from corelane.tasks.question_answering.tune.training.plan import TrainingOptions

#: Adam's two averages; 0.98 forgets a gradient in 50 steps, as is usual for transformers.
BETAS = (0.9, 0.98)


def rate_at(step: int, steps: int, options: TrainingOptions) -> float:
    """Return the learning rate of a step, counted from 0: it rises over the warm-up, then falls to 0."""
    rising = max(1, round(options.warm_up * steps))
    if step < rising:
        return options.learning_rate * (step + 1) / rising
    return options.learning_rate * max(0.0, (steps - step) / max(1, steps - rising))


class Fp32Weights:
    """The fp32 weights of a network, the optimiser's state, and the moving average."""

    def __init__(
        self, weights: Mapping[str, nn.Parameter], options: TrainingOptions, exact: Mapping[str, Tensor]
    ) -> None:
        """``exact`` holds the weights in fp32 by name, as the network's own are rounded."""
        self._options = options
        self._names = [
            [name for name, each in weights.items() if (each.dim() > 1) == decays] for decays in (True, False)
        ]
        self._weights = weights
        flat = [torch.cat([exact[name].float().reshape(-1) for name in names]) for names in self._names]
        self.flat = [nn.Parameter(each.to(next(iter(weights.values())).device)) for each in flat]
        self.average = [each.detach().clone() for each in self.flat]
        groups = [
            {"params": [each], "weight_decay": decay}
            for each, decay in zip(self.flat, (options.weight_decay, 0.0), strict=True)
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, betas=BETAS, fused=True)

    def step(self, step: int, steps: int) -> float:
        """Update the weights by the network's gradients and clear these; return the gradient's norm.

        Raises SetupError for a gradient that is not finite, and does not change the weights.
        """
        gradients = [
            torch.cat([_gradient(self._weights[name]).reshape(-1) for name in names]).float() for names in self._names
        ]
        norm = torch.stack([each.norm() for each in gradients]).norm()
        if not torch.isfinite(norm):
            raise SetupError(f"the gradient of step {step + 1:,} is not finite: take a lower --learning-rate")
        scale = (self._options.clip / (norm + 1e-6)).clamp(max=1.0)
        for master, gradient in zip(self.flat, gradients, strict=True):
            master.grad = gradient.mul_(scale)
        for group in self._optimizer.param_groups:
            group["lr"] = rate_at(step, steps, self._options)
        self._optimizer.step()
        self._optimizer.zero_grad()
        # At first the average follows closely. Otherwise it would contain the start for a thousand steps.
        keep = min(self._options.average, (1 + step) / (10 + step))
        for average, master in zip(self.average, self.flat, strict=True):
            average.lerp_(master.detach(), 1 - keep)
        self.show(self.flat)
        return float(norm)

    def show(self, flat: Sequence[Tensor]) -> None:
        """Write flat weights, the current ones or their average, into the network."""
        with torch.no_grad():
            for name, piece in self._pieces(flat):
                self._weights[name].copy_(piece)
                self._weights[name].grad = None

    def averaged(self) -> dict[str, Tensor]:
        """Return the moving average of each weight, by name."""
        return {name: piece.cpu() for name, piece in self._pieces(self.average)}

    def _pieces(self, flat: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield each weight's name and its part of flat weights, in its shape."""
        for names, weights in zip(self._names, flat, strict=True):
            pieces = weights.split([self._weights[name].numel() for name in names])
            yield from ((name, piece.view_as(self._weights[name])) for name, piece in zip(names, pieces, strict=True))

    def state(self) -> dict[str, Tensor]:
        """Return everything that a run needs to resume, by name."""
        kept: dict[str, Tensor] = {}
        for number, (weights, average) in enumerate(zip(self.flat, self.average, strict=True)):
            kept |= {f"weights.{number}": weights.detach(), f"average.{number}": average}
            kept |= {f"adam.{number}.{name}": value for name, value in self._optimizer.state[weights].items()}
        return kept

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state that ``state`` returned."""
        with torch.no_grad():
            for number, (weights, average) in enumerate(zip(self.flat, self.average, strict=True)):
                weights.copy_(state[f"weights.{number}"])
                average.copy_(state[f"average.{number}"])
                prefix = f"adam.{number}."
                self._optimizer.state[weights] = {
                    # The count of steps stays on the CPU in fp32; a fused step needs it on the device of the weights.
                    name.removeprefix(prefix): value.to(weights.device)
                    for name, value in state.items()
                    if name.startswith(prefix)
                }
        self.show(self.flat)


def _gradient(weight: nn.Parameter) -> Tensor:
    """Return a weight's gradient, zeros if the batch did not reach it."""
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
