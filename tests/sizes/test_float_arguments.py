"""Floats that vary between calls as arguments of functions that are not elementwise: results, gradients, programs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thunder

Program = Callable[[torch.Tensor, float], Any]


def creates(x: torch.Tensor, v: float) -> Any:
    return (
        *(torch.full((2,), v), torch.full((2,), v, dtype=torch.int32), torch.full_like(x, v), x.new_full((1,), v)),
        *(torch.tensor(v), torch.tensor([v, 1]), torch.tensor([[v], [2]], dtype=torch.float64), torch.as_tensor(v)),
        *(torch.scalar_tensor(v), x.new_tensor([v]), torch.linspace(v, 1, 4), torch.logspace(0, v, 3)),
    )


def fills(x: torch.Tensor, v: float) -> Any:
    y, b = x * 1, torch.zeros(3)
    y[0].fill_(v)
    y.view(-1)[13:].fill_(v)
    y[1] = v
    y[y > 1] = v
    y[:, 2] += v
    b.fill_(v)
    return y, b


def writes(x: torch.Tensor, v: float) -> Any:
    y = x * 1
    y.index_fill_(0, torch.tensor([1]), v)
    y.masked_fill_(y > 0, v)
    y.scatter_(1, torch.tensor([[0], [1], [2], [3]]), v)
    y.index_add_(0, torch.tensor([0]), x[:1], alpha=v)
    return y, F.pad(x, (1, 1), value=v), x.masked_fill(x > 0, v)


def draws(x: torch.Tensor, v: float) -> Any:
    p = abs(v)
    y, z = (x * 1).normal_(v, p + 1), (x * 1).uniform_(-1, v + 1)
    return (
        y,
        z,
        torch.normal(x, p),
        torch.normal(v, 1.0, (2,)),
        torch.bernoulli(x.detach(), p),
        F.gumbel_softmax(x, tau=p + 1),
    )


def normalizes(x: torch.Tensor, v: float) -> Any:
    eps = abs(v) + 1e-3
    mean, variance = torch.zeros(4), torch.ones(4)
    normalized = F.batch_norm(x, mean, variance, training=True, momentum=eps, eps=eps)
    return F.layer_norm(x, (4,), eps=eps), F.rms_norm(x, (4,), eps=eps), F.normalize(x, eps=eps), normalized, mean


def measures(x: torch.Tensor, v: float) -> Any:
    target, margin = x.detach().roll(1, 0), abs(v) + 0.01
    return (
        *(F.huber_loss(x, target, delta=margin), F.smooth_l1_loss(x, target, beta=abs(v))),
        *(F.cross_entropy(x, torch.arange(4), label_smoothing=abs(v)), torch.quantile(x, abs(v)), x.norm(p=margin)),
        F.triplet_margin_loss(x, target, target + 1, margin=margin),
    )


def lists(x: torch.Tensor, v: float) -> Any:
    a, b = x * 1, x.sin()
    torch._foreach_mul_([a, b], v)
    torch._foreach_add_([a, b], [b, a], alpha=v)
    return a, b, torch._foreach_addcmul([a, b], [b, b], [a, a], value=v), torch._foreach_add([a, b], [v, 2.0])


PROGRAMS: tuple[Program, ...] = (creates, fills, writes, draws, normalizes, measures, lists)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.slow
def test_one_program_for_all_floats(program: Program, gradients: bool) -> None:
    compiled = thunder.jit(program)
    for v in (0.1, 0.25, 0.5, 0.0, -0.75, 0.3):
        results = []
        for function in (compiled, program):
            torch.manual_seed(0)
            x = torch.randn(4, 4, requires_grad=gradients)
            result = list(function(x, v)[:])
            loss = sum([each.sum() for item in result for each in _tensors(item) if each.requires_grad], x.sum())
            results.append((result, torch.autograd.grad(loss, x) if gradients else (), torch.rand(2)))
        torch.testing.assert_close(*results)
    assert thunder.cache_misses(compiled) == 2


def _tensors(item: Any) -> list[torch.Tensor]:
    return [item] if isinstance(item, torch.Tensor) else list(item)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, 0.1, momentum=0.5),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 0.1),
    "fused": lambda parameters: torch.optim.AdamW(parameters, 0.1, fused=True),
    "loop": lambda parameters: torch.optim.Adam(parameters, 0.1, foreach=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.slow
def test_a_training_step_with_a_learning_rate_that_is_scheduled(name: str) -> None:
    first = nn.Linear(3, 2)
    runs = []
    for jit in (lambda function: function, thunder.jit):
        model = copy.deepcopy(first)
        optimizer = OPTIMIZERS[name](model.parameters())
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)

        def step(x: torch.Tensor, model: Any = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        compiled = jit(step)
        losses = []
        for number in range(8):
            losses.append(compiled(torch.full((2, 3), 0.1 * number)))
            schedule.step()
        runs.append((losses, list(model.parameters())))
    torch.testing.assert_close(*runs)
    assert thunder.cache_misses(compiled) <= 3


class Dropping(nn.Module):
    """Writes to the result of dropout, which is the argument itself if nothing is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.linear = nn.Dropout(0.5), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.dropout(x)
        y *= 2
        return self.linear(y), x * 1, y is x


@pytest.mark.parametrize("dynamic", ["automatic", True], ids=str)
def test_dropout_that_drops_nothing_returns_its_argument(dynamic: Any) -> None:
    module = Dropping()
    compiled = thunder.jit(module, dynamic=dynamic)
    for size, p in enumerate((0.5, 0.25, 0.0, 0.125, 0.0, 1.0), 2):
        for training in (True, False):
            module.dropout.p = p
            module.train(training)
            results = []
            for run in (module, compiled):
                torch.manual_seed(0)
                x = torch.ones(size, 4)
                results.append((*run(x), x))
            torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("function", [F.dropout, F.alpha_dropout, F.feature_alpha_dropout, F.dropout2d])
def test_probabilities_that_are_none(function: Any) -> None:
    compiled, x = thunder.jit(lambda x, p: function(x, p)), torch.ones(2, 3, 4, 4)
    for p in (0.5, 0.25, 1.5, -0.5):
        if 0 <= p <= 1:
            compiled(x, p)
            continue
        with pytest.raises(ValueError, match=f"but got {p}"):
            compiled(x, p)


def test_comparison_with_none_holds_for_all_sizes() -> None:
    def program(x: torch.Tensor, v: float) -> Any:
        return x == None, x != None, None in [x], x == "text", x * v  # noqa: E711

    compiled = thunder.jit(program)
    for size in range(3, 7):
        x = torch.ones(size)
        assert compiled(x, size / 8)[:4] == program(x, size / 8)[:4] == (False, True, False, False)
    assert thunder.cache_misses(compiled) == 2


def _gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The result and the gradient, or the error that backward raises."""
    x = torch.tensor([[-1.0, 2.0, 0.0, -0.5], [0.5, 0.0, 3.0, -2.0]], requires_grad=True)
    result = function(x)
    try:
        result.sum().backward()
    except RuntimeError as error:
        return result, str(error).partition("\n")[0]
    return result, x.grad


NORMS: dict[str, Program] = {
    "norm": lambda x, p: (x * 2).norm(p),
    "norm of rows": lambda x, p: torch.norm(x * 2, p, 1),
    "dist": lambda x, p: torch.dist(x * 2, torch.ones(4), p),
    "pairwise_distance": lambda x, p: F.pairwise_distance(x * 2, torch.ones(4), p),
    "PairwiseDistance": lambda x, p: nn.PairwiseDistance(p)(x * 2, torch.ones(4)),
    "triplet_margin_loss": lambda x, p: F.triplet_margin_loss(x * 2, torch.ones(2, 4), torch.zeros(2, 4), p=p),
    "foreach": lambda x, p: torch._foreach_norm([x * 2], p)[0],
}


@pytest.mark.parametrize("program", NORMS.values(), ids=NORMS)
def test_a_norm_with_exponent_zero_has_no_gradient(program: Program) -> None:
    compiled = thunder.jit(program)
    for p in (3.0, 2.5, 0.0, 1.0, 2.0, 1.5, 0.0):
        found, expected = (_gradient(lambda x, f=f, p=p: f(x, p)) for f in (compiled, program))  # type: ignore[misc]
        torch.testing.assert_close(found, expected)
        assert (found[1] is None) == (p == 0)
    assert thunder.cache_misses(compiled) == 3


ACTIVATIONS: dict[str, Program] = {
    "leaky_relu": lambda x, a: F.leaky_relu(x * 1, negative_slope=a, inplace=True),
    "leaky_relu_": lambda x, a: F.leaky_relu_(x * 1, a),
    "LeakyReLU": lambda x, a: nn.LeakyReLU(a, inplace=True)(x * 1),
    "elu": lambda x, a: F.elu(x * 1, a, inplace=True),
    "elu_": lambda x, a: F.elu_(x * 1, a),
    "celu": lambda x, a: F.celu(x * 1, alpha=a, inplace=True),
    "celu_": lambda x, a: torch.celu_(x * 1, a),
    "rrelu_": lambda x, a: F.rrelu_(x * 1, a, a),
}


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.slow
def test_activations_in_place_with_negative_coefficients_have_no_gradient(name: str, varies: bool) -> None:
    program = ACTIVATIONS[name]
    compiled = thunder.jit(program)
    for a in (0.5, 0.25, -0.1, 0.75, -1.0):
        if not varies:
            compiled = thunder.jit(program)
        found, expected = (_gradient(lambda x, f=f, a=a: f(x, a)) for f in (compiled, program))  # type: ignore[misc]
        torch.testing.assert_close(found[0], expected[0])
        assert type(found[1]) is type(expected[1]) is (str if a < 0 else torch.Tensor)
        if a < 0:
            assert found[1] == expected[1]
        else:
            torch.testing.assert_close(found[1], expected[1])
        with torch.no_grad():
            x = torch.randn(3, 4)
            assert torch.equal(compiled(x, a), program(x, a))


class Reversed(torch.autograd.Function):
    """Reverses gradients, as domain adaptation does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, v: float) -> torch.Tensor:
        ctx.v = v
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return -ctx.v * gradient, None


class Decides(torch.autograd.Function):
    """Has results of another shape for large numbers, which it computes with Python's operators and `math`."""

    @staticmethod
    def forward(x: torch.Tensor, v: float) -> torch.Tensor:
        large = math.exp(v) / 2 + abs(v) % 1 > 1
        return x[:1] * v if large else x * v

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.v = inputs
        ctx.rows = len(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return F.pad(gradient * ctx.v, (0, 0, 0, ctx.rows - len(gradient))), None


class Counts(Decides):
    """Has as many results as the number says, computed with NumPy."""

    @staticmethod
    def forward(x: torch.Tensor, v: float) -> torch.Tensor:
        return x[: int(np.ceil(2 * v))] * v


@pytest.mark.filterwarnings("ignore::thunder_core.errors.RecompileWarning")
@pytest.mark.parametrize(("function", "most"), [(Reversed, 2), (Decides, 4), (Counts, 9)])
@pytest.mark.parametrize("source", ["argument", "tensor"])
@pytest.mark.slow
def test_a_float_argument_of_an_autograd_function(function: Any, most: int, source: str) -> None:
    def program(x: torch.Tensor, v: Any) -> Any:
        return function.apply(x * 2, v if source == "argument" else v.item()).sin()

    compiled = thunder.jit(program, recompile_warning=100)
    for v in (0.125, 0.25, 0.5, 0.75, 1.5, 0.625, 1.125, 0.375):
        results = []
        for each in (compiled, program):
            x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
            y = each(x, v if source == "argument" else torch.tensor(v))
            results.append((y, *torch.autograd.grad(y.sum(), x)))
        torch.testing.assert_close(*results)
    assert thunder.cache_misses(compiled) <= most
