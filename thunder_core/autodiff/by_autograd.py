"""The derivative that PyTorch's autograd gives for a line, traced on fake tensors."""

from __future__ import annotations

from dataclasses import replace

import torch

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query
from thunder_core.autodiff.tracing import LineTracing, split_log
from thunder_core.errors import LoweringError
from thunder_core.tracing.sizes import operators_for_sizes
from thunder_core.tracing.tracer import Level


def derive_by_autograd(query: Query) -> Derivative:
    """Run the line and its backward on fake tensors and keep the operations.

    Raises:
        LoweringError: that is not possible, with the reason.
    """
    try:
        return split_log(query, _Tracing(query, Level.ATEN).log(), "PyTorch's autograd")
    except LoweringError:
        raise
    except Exception as error:  # whatever PyTorch's kernels, or a user's formula, cannot do with fake tensors
        raise LoweringError(f"{type(error).__name__}: {error}") from error


class _Tracing(LineTracing):
    """Autograd computes both halves."""

    def forward(self) -> list[torch.Tensor]:
        args, kwargs = self.arguments()
        assert self.bound.context is not None
        context = replace(self.bound.context, grad_enabled=True, inference=False)
        with self.tracer.recording(context), operators_for_sizes(self.bound):
            result = self.bound.symbol.target(*args, **kwargs)
        return self.results(result)

    def backward(self, results: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        reached = [result if result.requires_grad else None for result in results]
        pairs = zip(reached, self.cotangents(reached), strict=True)
        found = [(result, cotangent) for result, cotangent in pairs if result is not None and cotangent is not None]
        wanted = [(name, fake) for name, fake in self.fakes.items() if name in self.query.wanted]
        if not found or not wanted:
            return {}
        with self.tracer.recording(PLAIN):
            gradients = torch.autograd.grad(
                [result for result, _ in found],
                [fake for _, fake in wanted],
                [cotangent for _, cotangent in found],
                allow_unused=True,
            )
        return {name: tensor for (name, _), tensor in zip(wanted, gradients, strict=True) if tensor is not None}
