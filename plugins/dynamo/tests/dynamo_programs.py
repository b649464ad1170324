"""Programs that Dynamo makes graphs of, each with an operation that Dynamo's graphs represent in a special form."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

MARKS = [
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),  # read by torch.compile itself
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),  # by torch.func.jvp when it is first called
]

PROGRAMS: dict[str, Callable[..., Any]] = {}
"""Functions of a module and a tensor of shape (4, 4)."""


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__] = function
    return function


class Scaled(torch.autograd.Function):
    """Its backward is not the derivative, reads a saved tensor, another one, and a number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.tripled, ctx.factor = x * 3, factor
        return x * 2 * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.saved_tensors[0] * ctx.factor + ctx.tripled, None


class Twice(torch.nn.Module):
    """A layer and a buffer that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def save_products(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    chosen = operator == torch.ops.aten.mm.default
    return CheckpointPolicy.MUST_SAVE if chosen else CheckpointPolicy.PREFER_RECOMPUTE


@program
def checkpointed(module: Any, x: torch.Tensor) -> Any:
    return checkpoint(lambda value: F.dropout(module(value).sin(), 0.5), x, use_reentrant=False)


@program
def reentrant_checkpoint(module: Any, x: torch.Tensor) -> Any:
    return checkpoint(lambda value: F.dropout(module(value).sin(), 0.5), x, use_reentrant=True)


@program
def selective_checkpoint(module: Any, x: torch.Tensor) -> Any:
    contexts = functools.partial(create_selective_checkpoint_contexts, save_products)
    return checkpoint(lambda value: (value @ value).sin(), x, use_reentrant=False, context_fn=contexts)


@program
def function_in_checkpoint(module: Any, x: torch.Tensor) -> Any:
    return checkpoint(lambda value: Scaled.apply(module(value), 1.5).cos(), x, use_reentrant=False)


@program
def functions_of_functions(module: Any, x: torch.Tensor) -> Any:
    return Scaled.apply(Scaled.apply(x, 1.5).sin(), 2.0) * x


@program
def autocast(module: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ x
    return y, z * 2


@program
def checkpoint_under_autocast(module: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return checkpoint(lambda value: module(value).sin(), x, use_reentrant=False)


@program
def without_gradients(module: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = module(x) * 2
    return y + x


@program
def written_buffer(module: Any, x: torch.Tensor) -> Any:
    module.total += x.detach().sum(0)
    module.total.mul_(0.5)
    return module(x) * module.total


@program
def written_views(module: Any, x: torch.Tensor) -> Any:
    y = x * 1
    y[0] = 3.0
    y.t()[:, 1].add_(1)
    return y


@program
def written_input(module: Any, x: torch.Tensor) -> Any:
    x.data.add_(1)
    return x * 2


@program
def written_data(module: Any, x: torch.Tensor) -> Any:
    y = x.sin()
    z = y.cos()
    y.data.mul_(3.0)  # backward of the cosine takes the new values
    return z


@program
def views_of_inputs(module: Any, x: torch.Tensor) -> Any:
    return x, x.view(2, 8), x.t()


@program
def random_numbers(module: Any, x: torch.Tensor) -> Any:
    return x + torch.rand(4, 4) + torch.randn_like(x) + F.dropout(x, 0.3)


@program
def gradient_hook(module: Any, x: torch.Tensor) -> Any:
    y = module(x)
    y.register_hook(lambda gradient: gradient * 2)
    return y * 3


@program
def nested_region(module: Any, x: torch.Tensor) -> Any:
    return _region(x, module.layer.weight) + _region(x * 2, module.layer.weight)


@torch.compiler.nested_compile_region
def _region(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).sin()


@program
def transformations(module: Any, x: torch.Tensor) -> Any:
    gradient = torch.func.vmap(torch.func.grad(lambda row: (row**3).sum()))(x)
    return gradient, torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]


@program
def conditional(module: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda value: value + 1, lambda value: (value - 1).sin(), (x,))


@program
def mapped(module: Any, x: torch.Tensor) -> Any:
    from torch._higher_order_ops import map as map_rows

    return map_rows(lambda row: row.sin() * 2, x)


@program
def broken(module: Any, x: torch.Tensor) -> Any:
    y = module(x).relu()
    torch._dynamo.graph_break()
    return (y + 1) * x


@program
def branch_on_a_value(module: Any, x: torch.Tensor) -> Any:
    y = F.dropout(module(x), 0.5)
    if y.sum() > 1000:
        y = y * 2
    return torch.tanh(y) + 1


@program
def without_results(module: Any, x: torch.Tensor) -> Any:
    module.total += x.detach().mean(0)


@program
def own_gradient(module: Any, x: torch.Tensor) -> Any:
    return (x * x).sum() if not x.requires_grad else torch.autograd.grad((x * x).sum(), x)[0]


@program
def attention(module: Any, x: torch.Tensor) -> Any:
    heads = x.view(1, 2, 2, 4)
    return F.scaled_dot_product_attention(heads, heads, heads)


@program
def constants(module: Any, x: torch.Tensor) -> Any:
    assert x.shape[0] > 1
    torch._check(x.shape[1] > 1)
    return torch.tensor([1.0, 2.0, 3.0, 4.0]) * x + x.new_zeros(4)


def outcome(function: Callable[..., Any], calls: int, training: bool) -> list[Any]:
    """All that some calls of a program give and change, the random state included."""
    torch.manual_seed(0)
    module = Twice()
    found: list[Any] = []
    for seed in range(calls):
        torch.manual_seed(seed)
        x = torch.randn(4, 4, requires_grad=training)
        result = function(module, x)
        differentiable = [one for one in _tensors(result) if one.requires_grad]
        if differentiable:
            sum(one.square().sum() for one in differentiable).backward()
        found.append((result, x, x.grad, module.total.clone(), torch.rand(1)))
    gradients = [parameter.grad for parameter in module.parameters()]
    return list(itertools.chain(found, gradients))


def _tensors(result: Any) -> list[torch.Tensor]:
    return [one for one in (result if isinstance(result, tuple) else (result,)) if isinstance(one, torch.Tensor)]
