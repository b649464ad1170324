"""Custom operators, torch.func, autograd and modes inside a program, the outer loss differentiated through them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tests.subjects import SUBJECT
from tests.training.steps import assert_same, assert_same_training, check, leaf, loss_of, raised


@torch.library.custom_op("training_battery::scaled_sine", mutates_args=())
def scaled_sine(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x.sin() * scale


@scaled_sine.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _backward(ctx: Any, gradient: torch.Tensor) -> Any:
    return gradient * ctx.saved_tensors[0].cos() * ctx.scale * 11, None


scaled_sine.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("training_battery::no_derivative", mutates_args=())
def no_derivative(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@no_derivative.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("training_battery::add_to", mutates_args=("target",))
def add_to(target: torch.Tensor, x: torch.Tensor) -> None:
    target.add_(x)


def mutating_operator(x: torch.Tensor) -> Any:
    total = torch.zeros(3, 4)
    add_to(total, x.detach())
    return total * x, total


def penalty(x: torch.Tensor) -> torch.Tensor:
    """The loss of a gradient penalty."""
    (gradient,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    return (gradient.norm(dim=1) - 1).square().mean() + x.sum()


def of_a_detached_copy(x: torch.Tensor) -> Any:
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(y.exp().sum(), y)
    return gradient * x, gradient


def backward_inside(x: torch.Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    (y.sin() * y).sum().backward()
    return y.grad * x


def energy(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).sum() + x.prod()


@torch.no_grad()
def frozen(x: torch.Tensor) -> torch.Tensor:
    return x * 5


def modes(x: torch.Tensor) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = a * x
        with torch.set_grad_enabled(False):
            c = b + x
    with torch.set_grad_enabled(x.shape[0] == 3):
        d = x.cos()
    with torch.inference_mode():
        rows = (x * 2).shape[0]
    return a, b, c, d * frozen(x), x.detach() * x, rows, torch.is_grad_enabled(), torch.enable_grad()(lambda: x * 3)()


def stop_gradient(x: torch.Tensor) -> Any:
    soft = x.softmax(-1)
    hard = torch.zeros_like(x).scatter(1, soft.argmax(-1, keepdim=True), 1.0)
    return hard - soft.detach() + soft, (x * 2).requires_grad_(), (x * 2).detach().requires_grad_()


def views_in_place(row: torch.Tensor) -> Any:
    square = (row * 2).view(2, 2)
    return square.clone().t_().mul_(row[0]), square.clone().unsqueeze_(0).squeeze_(0), square.transpose_(0, 1) + 1


def view_of_the_mapped(x: torch.Tensor) -> Any:
    """The shape of a tensor of the program changes inside of vmap; another name shares its memory."""
    y = x * 2
    rows = y.view(3, 4)
    return vmap(lambda row: row.unsqueeze_(0).mul_(3) + 1)(rows), rows, y, rows.shape, y.shape


def requires_grad_is_assigned(x: torch.Tensor) -> Any:
    y = x.detach() * 2
    y.requires_grad = True
    z = x[None]
    z.requires_grad = True
    return y * z


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "operator with a derivative": lambda x: scaled_sine(x * 2, 3.0) * x,
    "operator of torch.ops": lambda x: torch.ops.training_battery.scaled_sine(x, 2.0),
    "operator twice": lambda x: scaled_sine(scaled_sine(x, 2.0), 0.5),
    "operator without a derivative, unused": lambda x: (x * no_derivative(x.detach()), no_derivative(x.detach())),
    "operator that writes": mutating_operator,
    "gradient penalty": penalty,
    "gradient of a detached copy": of_a_detached_copy,
    "backward inside": backward_inside,
    "func.grad": lambda x: grad(energy)(x) * x,
    "func.grad of a part": lambda x: grad(lambda a, b: (a * b.exp()).sum(), argnums=1)(x, x * 2),
    "func.grad of func.grad": lambda x: grad(lambda y: grad(energy)(y).square().sum())(x),
    "func.grad_and_value": lambda x: grad_and_value(lambda y: (energy(y), y * 2), has_aux=True)(x),
    "func.vjp": lambda x: (lambda out, pull: (out, pull(out * 2)[0]))(*vjp(torch.sin, x)),
    "func.jvp": lambda x: jvp(lambda y: y.sin() * y, (x,), (x.cos(),)),
    "func.jacrev": lambda x: jacrev(lambda y: y.sin() @ y)(x[0]),
    "func.jacfwd": lambda x: jacfwd(lambda y: y.sin() * y)(x[0]),
    "func.hessian": lambda x: hessian(energy)(x[0]) @ x[1],
    "func.vmap": lambda x: vmap(lambda row: row.softmax(0) * row.sum())(x),
    "vmap of grad": lambda x: vmap(grad(lambda row, w: (row * w).sin().sum()), in_dims=(0, None))(x, x[0]),
    "vmap of views in place": lambda x: vmap(views_in_place)(x),
    "vmap changes a shape": view_of_the_mapped,
    "grad of views in place": lambda x: grad(lambda y: ((y * 1).t_().sin() * x[:, 0]).sum())(x),
    "requires_grad is assigned": requires_grad_is_assigned,
    "modes": modes,
    "stop gradient": stop_gradient,
    "closure read by func.grad": lambda x: grad(lambda y: (y * x.detach()).sum())(x) + grad(lambda y: (y * x).sum())(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_program(name: str) -> None:
    check(PROGRAMS[name], lambda: (leaf(3, 4),))


def test_operator_without_a_derivative() -> None:
    """Used anyhow, it is an error in backward as in eager."""

    def scenario(function: Any) -> Any:
        output = function(leaf(3, 4))
        return output.requires_grad, raised(output.sum().backward), function(torch.ones(3, 4))

    assert_same(lambda: lambda x: no_derivative(x * 2) + 1, scenario)


def test_per_sample_gradients_of_a_module() -> None:
    class PerSample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            def loss(parameters: Any, row: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
                return (functional_call(self.linear, parameters, (row,)) - target).square().sum()

            parameters = {name: parameter.detach() for name, parameter in self.linear.named_parameters()}
            return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y), self.linear(x)

    assert_same_training(PerSample, lambda: (torch.randn(5, 4), torch.randn(5, 3)))


def test_an_inner_loop_that_is_differentiated() -> None:
    """Steps of gradient descent inside the program; the outer gradient goes through them."""

    class Adapts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Parameter(torch.randn(4))
            self.rate = nn.Parameter(torch.tensor(0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = self.start
            for _ in range(3):
                (gradient,) = torch.autograd.grad((x @ weights).square().mean(), weights, create_graph=True)
                weights = weights - self.rate * gradient
            return (x @ weights).square().mean()

    assert_same_training(Adapts, lambda: (torch.randn(5, 4),), optimizer=lambda p: torch.optim.SGD(p, lr=0.01))


def save_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("how", ["policy", "list", "around"])
def test_selective_checkpointing(how: str) -> None:
    policy: Any = [torch.ops.aten.addmm.default] if how == "list" else save_products
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 4), nn.Tanh())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if how == "around":
                return self.body(x)
            return checkpoint(self.body, x, use_reentrant=False, context_fn=contexts) + x

    def scenario(model: Any) -> Any:
        inputs = [leaf(5, 4), leaf(5, 4)]
        for x in inputs:
            around = checkpoint(model, x, use_reentrant=False, context_fn=contexts) if how == "around" else model(x)
            loss_of(around).backward()
        return inputs

    assert_same(Model, scenario)


@pytest.mark.parametrize("transform", ["vjp", "jacrev", "vmap of grad"])
def test_function_transforms_in_inference_mode(transform: str) -> None:
    """Their backward may come after they have ended, with outputs that autograd saved."""

    def program(x: torch.Tensor) -> torch.Tensor:
        if transform == "vjp":
            value, pullback = torch.func.vjp(torch.tanh, x)
            return pullback(value)[0]
        if transform == "jacrev":
            return torch.func.jacrev(lambda y: y.tanh().sum(-1))(x)
        return torch.func.vmap(torch.func.grad(lambda y: y.tanh().sum()))(x)

    x = torch.randn(3, 4)
    with torch.inference_mode():
        expected, actual = program(x), SUBJECT(program)(x)
    torch.testing.assert_close(actual, expected)
    assert actual.is_inference() == expected.is_inference()
