"""Autograd functions with derivatives that autograd would not find by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class OldStyle(Function):
    """Saves an input, an output, an intermediate, a number and a tensor as an attribute."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, name: str) -> torch.Tensor:
        middle = x.sin()
        output = middle * scale
        ctx.save_for_backward(x, output, middle)
        ctx.scale, ctx.name, ctx.constant = scale, name, torch.ones(4)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, output, middle = ctx.saved_tensors
        assert ctx.name == "old"
        return gradient * (x + 10 * output + 100 * middle) * ctx.scale * ctx.constant, None, None


class SetupContext(Function):
    @staticmethod
    def forward(x: torch.Tensor, y: torch.Tensor, power: int) -> Any:
        return x**power, y * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, _, ctx.power = inputs
        ctx.save_for_backward(x, output[0])

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> Any:
        x, output = ctx.saved_tensors
        return first * ctx.power * x + output, second * 3, None


class Adjoint(Function):
    """Its backward differentiates a function by its argument and the parameters that it finds by itself."""

    @staticmethod
    def forward(ctx: Any, function: Any, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.function = function
        ctx.save_for_backward(x, *parameters)
        return function(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            result = ctx.function(x)
            return None, *torch.autograd.grad(result, (x, *parameters), gradient, allow_unused=True)


class NeedsInputGrad(Function):
    """The values of its gradients encode ``needs_input_grad``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, y = ctx.saved_tensors
        factor = 10.0 ** sum(ctx.needs_input_grad)
        return (
            gradient * y * factor if ctx.needs_input_grad[0] else None,
            gradient * x * factor if ctx.needs_input_grad[1] else None,
        )


class NonDifferentiable(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        values, indices = x.sort(1)
        copied = values.clone()
        ctx.mark_non_differentiable(indices, copied)
        ctx.save_for_backward(indices)
        return values, indices, copied

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, no_indices: Any, no_copy: Any) -> torch.Tensor:
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(gradient).scatter(1, indices, gradient * 2)


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 5


class NotMarked(Function):
    """Writes a column of its first argument, which it returns without `mark_dirty`, as solvers of torchdiffeq do."""

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor, column: torch.Tensor, index: int) -> torch.Tensor:
        ctx.index = index
        table.data[..., index] = column
        return table

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, gradient[..., ctx.index], None


class NotMaterialized(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3, x.sum()

    @staticmethod
    def backward(ctx: Any, *received: torch.Tensor | None) -> Any:
        present = [gradient for gradient in received if gradient is not None]
        return sum(gradient.sum() for gradient in present).expand(3, 4) * len(present)


class Materialized(NotMaterialized):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return x * 2, x * 3, x.sum()


class OnceDifferentiable(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0] * 4


class Nested(Function):
    """Uses another function in forward (where nothing is recorded) and in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return OldStyle.apply(x, 2.0, "old") + x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return OldStyle.apply(gradient * ctx.saved_tensors[0], 3.0, "old")


class GradInside(Function):
    """Differentiates in its forward, and again in its backward, as checkpointing does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.cos().square()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = ctx.saved_tensors[0].detach().requires_grad_()
            (result,) = torch.autograd.grad(y.cos().square(), y, gradient)
        return result * 2


class StraightThrough(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class ViewAndInput(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return x.view_as(x), x.t().clone()

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first * 7 + second.t()


class ExpandedGradient(Function):
    """A sum whose gradient takes no memory: its strides are zero."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.shape = x.shape
        return x.sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.expand(ctx.shape)
