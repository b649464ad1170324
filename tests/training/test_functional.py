"""`thunder.grad`, `value_and_grad` and `vjp`, with the semantics of torch.func; `last_backward_traces`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

import thunder
from tests.subjects import SUBJECT, eager
from tests.training.steps import detached, leaf
from thunder_testing import Comparison
from thunder_testing.difference import differences
from thunder_testing.snapshot import snapshot

pytestmark = pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")


def assert_equal(actual: Any, expected: Any, comparison: Comparison = Comparison(rtol=1e-5, atol=1e-6)) -> None:  # noqa: B008
    """Structure, dtypes, ``requires_grad`` and values; not which results share memory."""
    found = differences(snapshot(result=_plain(expected)), snapshot(result=_plain(actual)), comparison)
    assert not found, "\n".join(found)


def _plain(tree: Any) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: (t.requires_grad, detached(t)), tree)


def energy(x: torch.Tensor, y: torch.Tensor | float = 2.0, *, scale: float = 1.0) -> torch.Tensor:
    return (x.sin() * y * scale).sum() + (x**2).prod()


def with_aux(x: torch.Tensor, y: torch.Tensor) -> Any:
    product = x * y
    return product.square().sum(), {"product": product, "parts": [x.detach(), y > 0]}


def of_tree(parameters: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    hidden = x @ parameters["first"]["weight"] + parameters["first"]["bias"]
    return (hidden.tanh() @ parameters["layers"][0] * parameters["layers"][1]).square().mean()


def tree() -> dict[str, Any]:
    return {
        "first": {"weight": torch.randn(4, 3), "bias": torch.randn(3)},
        "layers": [torch.randn(3, 2), torch.randn(())],
        "unused": (torch.randn(2),),
    }


def writes(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0] = x[1].exp()
    return y.mul_(x).sum()


def x() -> torch.Tensor:
    return torch.randn(3, 4)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "one argument": (energy, lambda: (x(),), {}),
    "two arguments": (energy, lambda: (x(), x()), {}),
    "a number besides": (energy, lambda: (x(), 3.0), {}),
    "the second": (energy, lambda: (x(), x()), {"argnums": 1}),
    "the last": (energy, lambda: (x(), x()), {"argnums": -1}),
    "both": (energy, lambda: (x(), x()), {"argnums": (0, 1)}),
    "in another order": (energy, lambda: (x(), x()), {"argnums": (1, 0)}),
    "a tuple of one": (energy, lambda: (x(), x()), {"argnums": (0,)}),
    "auxiliary output": (with_aux, lambda: (x(), x()), {"has_aux": True}),
    "auxiliary output, both": (with_aux, lambda: (x(), x()), {"has_aux": True, "argnums": (0, 1)}),
    "a tree": (of_tree, lambda: (tree(), x()), {}),
    "a tree and a tensor": (of_tree, lambda: (tree(), x()), {"argnums": (0, 1)}),
    "in place": (writes, lambda: (x(),), {}),
    "unused": (lambda a, b: a.sum(), lambda: (x(), x()), {"argnums": (0, 1)}),
    "double precision": (energy, lambda: (x().double(),), {}),
    "bfloat16": (energy, lambda: (x().bfloat16(),), {}),
    "an input that requires grad": (energy, lambda: (leaf(3, 4), x()), {}),
    "detached": (lambda a: (a.detach() * a).sum(), lambda: (x(),), {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.battery
def test_grad_and_value_and_grad(name: str) -> None:
    function, make, options = CASES[name]
    comparison = Comparison(rtol=2e-2, atol=2e-2) if name == "bfloat16" else Comparison(rtol=1e-5, atol=1e-6)
    ours, both = thunder.grad(function, **options), thunder.value_and_grad(function, **options)
    for _ in range(2):
        arguments = make()
        assert_equal(ours(*arguments), torch.func.grad(function, **options)(*arguments), comparison)
        gradient, value = torch.func.grad_and_value(function, **options)(*arguments)
        assert_equal(both(*arguments), (value, gradient), comparison)
        assert all(leaf.grad is None for leaf in torch.utils._pytree.tree_leaves(arguments) if torch.is_tensor(leaf))


def test_keyword_arguments() -> None:
    value = x()
    assert_equal(thunder.grad(energy)(value, scale=3.0), torch.func.grad(energy)(value, scale=3.0))


MISTAKES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "not a scalar": (lambda a: a * 2, {}),
    "not a tensor": (lambda a: 3.0, {}),
    "no such argument": (energy, {"argnums": 7}),
    "no auxiliary output": (lambda a: a.sum(), {"has_aux": True}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    function, options = MISTAKES[name]
    with pytest.raises(Exception):  # noqa: B017 - torch.func's classes differ from case to case
        torch.func.grad(function, **options)(x())
    with pytest.raises((thunder.ThunderError, RuntimeError, TypeError, ValueError)):
        thunder.grad(function, **options)(x())


def test_under_no_grad() -> None:
    value = x()
    with torch.no_grad():
        assert_equal(thunder.grad(energy)(value), torch.func.grad(energy)(value))


VJP: dict[str, tuple[Callable[..., Any], Callable[[], Any], Callable[[], Any]]] = {
    "a tensor": (lambda a: a.sin(), x, x),
    "a tuple of one": (lambda a: a.sin(), lambda: (x(),), x),
    "two": (lambda a, b: a @ b.t(), lambda: (x(), x()), lambda: torch.randn(3, 3)),
    "several outputs": (lambda a: (a.exp(), {"sum": a.sum()}), x, lambda: (x(), {"sum": torch.randn(())})),
    "a tree": (of_tree, lambda: (tree(), x()), lambda: torch.randn(())),
    "an unused input": (lambda a, b: a * 2, lambda: (x(), x()), x),
}


@pytest.mark.parametrize("name", VJP)
@pytest.mark.slow
def test_vjp(name: str) -> None:
    function, make_primals, make_cotangents = VJP[name]
    ours = thunder.vjp(function)
    for _ in range(2):
        primals, cotangents = make_primals(), make_cotangents()
        arguments = primals if isinstance(primals, tuple) else (primals,)
        outputs, pull = torch.func.vjp(function, *arguments)
        gradients = pull(cotangents)
        assert_equal(ours(primals, cotangents), (outputs, gradients if isinstance(primals, tuple) else gradients[0]))


@pytest.mark.slow
def test_composition() -> None:
    value = torch.rand(4) + 0.5
    ours, theirs = thunder.grad, torch.func.grad
    assert_equal(ours(lambda a: ours(energy)(a).square().sum())(value), _second(theirs)(value))
    assert_equal(ours(SUBJECT(energy))(value), theirs(energy)(value))
    assert_equal(SUBJECT(ours(energy))(value), theirs(energy)(value))
    assert_equal(SUBJECT(lambda a: ours(energy)(a * 2) + a)(value), theirs(energy)(value * 2) + value)
    assert_equal(SUBJECT(_second(ours))(value), _second(theirs)(value))
    assert_equal(ours(lambda a: theirs(energy)(a).sum())(value), theirs(lambda a: theirs(energy)(a).sum())(value))
    assert_equal(ours(lambda a: thunder.value_and_grad(energy)(a)[1].sum())(value), _sum_of_gradient()(value))
    third = lambda g: g(lambda a: g(lambda b: g(lambda c: (c**4).sum())(b).sum())(a).sum())  # noqa: E731
    assert_equal(third(ours)(value), third(theirs)(value))


def _second(grad: Callable[..., Any]) -> Callable[..., Any]:
    return grad(lambda a: grad(energy)(a).square().sum())


def _sum_of_gradient() -> Callable[..., Any]:
    return torch.func.grad(lambda a: torch.func.grad(energy)(a).sum())


def test_modules() -> None:
    """A module is differentiated with respect to its arguments; its parameters get no gradient."""

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.linear(value).square().mean()

    loss, value = Loss(), x()
    for module in (loss, SUBJECT(loss)):
        assert_equal(thunder.grad(module)(value), torch.func.grad(loss)(value))
    assert all(parameter.grad is None for parameter in loss.parameters())


@pytest.mark.slow
def test_parameters_by_functional_call() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
        return functional_call(model, values, (batch,)).square().mean()

    batch = x()
    assert_equal(thunder.grad(loss)(parameters, batch), torch.func.grad(loss)(parameters, batch))
    gradient, value = torch.func.grad_and_value(loss)(parameters, batch)
    assert_equal(SUBJECT(thunder.value_and_grad(loss))(parameters, batch), (value, gradient))


@pytest.mark.slow
def test_random_numbers_and_state() -> None:
    """Dropout draws what eager draws, and statistics are updated once."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    twin = copy.deepcopy(model)
    batch = x()
    torch.manual_seed(3)
    gradient = thunder.grad(lambda value: twin(value).square().sum())(batch)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    value = batch.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(value).square().sum(), value, create_graph=True)  # parameters matter to it
    assert torch.equal(state, torch.get_rng_state())
    assert_equal((gradient, dict(twin.named_buffers())), (expected, dict(model.named_buffers())))


def test_last_backward_traces() -> None:
    model = SUBJECT(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    model(x()).square().mean().backward()
    traces = thunder.last_backward_traces(model)
    assert traces
    source = str(traces[-1])
    assert any(isinstance(node, ast.FunctionDef) and len(node.body) > 1 for node in ast.walk(ast.parse(source)))
    with pytest.raises(thunder.OptionError):
        thunder.last_backward_traces(nn.Linear(2, 2))


def test_last_backward_traces_without_a_backward() -> None:
    """Nothing requires grad: there is no backward program, and saying so is not a crash."""
    function = SUBJECT(lambda value: value * 2)
    function(x())
    assert thunder.last_backward_traces(function) == ()
    assert len(thunder.last_backward_traces(function)[:1]) == 0
    with pytest.raises(IndexError, match="no backward trace, since the latest call needed no gradients"):
        thunder.last_backward_traces(function)[-1]
