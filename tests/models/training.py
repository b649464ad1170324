"""One step of training: the loss of a batch and the gradient of every parameter, compiled, against eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from tests.subjects import Compile, hit_counter
from thunder_testing import Arguments, Comparison, assert_same_behaviour
from thunder_testing.snapshot import snapshot

Batch = dict[str, Any]
Objective = Callable[[torch.nn.Module, Batch], torch.Tensor]
# Eager's float32 gradients of these models are up to 3e-5 of the largest element away from its float64 gradients.
COMPARISON = Comparison(rtol=1e-5, atol=1e-6, gradients=True, gradient_atol=1e-6, gradient_scale_rtol=1e-4)


@dataclass(eq=False)
class Step:
    """A model and what it is trained for; called with a batch it gives the loss."""

    model: Any
    objective: Objective

    def __call__(self, **batch: Any) -> torch.Tensor:
        return self.objective(self.model, batch)


def check_training(
    model: torch.nn.Module, objective: Objective, make_batch: Callable[[], Batch], compile: Compile, calls: int = 2
) -> None:
    """Losses and gradients of ``calls`` batches, the gradients accumulating; the loss is computed outside the program.

    The model is compiled as it is: in training mode if it is, with the same dropout as eager. Its weights are drawn
    anew.
    """
    _let_gradients_through(model)
    hits = hit_counter(compile)
    assert_same_behaviour(
        Step(model, objective),
        lambda: Arguments(**make_batch()),
        lambda step: Step(compile(step.model), objective),
        rounds=calls,
        cache_hits=hits and (lambda step: hits(step.model)),
        comparison=COMPARISON,
    )


def own_loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """The loss that the model makes of the labels in the batch."""
    loss: torch.Tensor = model(**batch).loss
    return loss


def next_token(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Cross entropy of the logits that the model returns with the tokens that follow."""
    logits = model(**batch)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["idx"][:, 1:].flatten())


def distance_from_noise(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Squared distance of all differentiable outputs from random targets, which no normalisation makes constant."""
    generator = torch.Generator().manual_seed(0)
    outputs = [entry.value for entry in snapshot(outputs=model(**batch)).values()]
    differentiable = [value for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad]
    return torch.stack([(y - torch.randn(y.shape, generator=generator)).square().mean() for y in differentiable]).sum()


def _let_gradients_through(model: torch.nn.Module) -> None:
    """Draw weights that keep activations in scale: with the usual small ones, gradients vanish into the tolerance."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
            elif name.endswith("weight"):  # of normalisations
                parameter.uniform_(0.5, 1.5)
