"""Functional transformations against torch.func: nesting, trees, errors, random numbers, and what comes out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import thunder
from thunder_core.autodiff.derivatives import derive

Function = Callable[..., Any]


def assert_same(actual: Any, expected: Any) -> None:
    """Structure, values, and whether they can be differentiated further."""
    assert pytree.tree_structure(actual) == pytree.tree_structure(expected)
    for one, other in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-5, atol=1e-6)
        assert one.requires_grad == other.requires_grad


def nested(grad: Function, function: Function, depth: int) -> Function:
    if depth == 1:
        return grad(function)
    inner = nested(grad, function, depth - 1)
    return grad(lambda value: inner(value).square().sum())


def without_recording(value: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        factor = value.exp()
    return (value * factor).sum() + value.sin().sum()


class RoundedStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(value):
        return value.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class WithoutContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def hooked(value: torch.Tensor) -> torch.Tensor:
    inner = value.sin()
    inner.register_hook(lambda gradient: gradient * gradient * 2)
    return (inner * value).sum()


NESTED: dict[str, Function] = {
    "a hook": hooked,
    "elementwise": lambda a: (a.sin() * a).sum(),
    "matmul": lambda a: (a @ a.t()).tanh().sum(),
    "layer norm": lambda a: F.layer_norm(a, (4,)).pow(3).sum(),
    "softmax": lambda a: F.softmax(a, -1).square().sum(),
    "cross entropy": lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2])),
    "dropout": lambda a: F.dropout(a.sin(), 0.5).square().sum(),
    "random numbers": lambda a: (a * torch.rand_like(a)).square().sum(),
    "a function that detaches inside": lambda a: (F.gumbel_softmax(a, hard=True) * a).square().sum(),
    "writes to its own": lambda a: (a * 2).mul_(a).sin_().sum(),
    "views": lambda a: (a[1:] * a[:-1]).t().sin().sum(),
    "no_grad inside": without_recording,
    "detach": lambda a: (a.detach().exp() * a).sum() + a.sin().sum(),
    "a user's formula": lambda a: (RoundedStraightThrough.apply(a * 2) * a).sin().sum(),
    "cotangents that overlap": lambda a: a.sum(0).expand(3, 4).sin().sum(),
}


DEPTHS = [*((name, 2) for name in NESTED), ("a hook", 3), ("matmul", 3), ("views", 3)]


@pytest.mark.parametrize(("name", "depth"), DEPTHS)
@pytest.mark.battery
def test_nested(name: str, depth: int) -> None:
    _gradients_are_equal(name, depth)


@pytest.mark.battery
@pytest.mark.parametrize("name", NESTED)
def test_not_nested(name: str) -> None:
    """The inner gradient of `test_nested` alone."""
    _gradients_are_equal(name, 1)


def _gradients_are_equal(name: str, depth: int) -> None:
    value = torch.randn(3, 4, dtype=torch.float64)
    ours, theirs = nested(thunder.grad, NESTED[name], depth), nested(torch.func.grad, NESTED[name], depth)
    for seed in range(2):
        torch.manual_seed(seed)
        expected, state = theirs(value), torch.get_rng_state()
        torch.manual_seed(seed)
        assert_same(ours(value), expected)
        assert torch.equal(torch.get_rng_state(), state)


MODULES: dict[str, Function] = {
    "linear": lambda: nn.Linear(4, 2),
    "group norm": lambda: nn.Sequential(nn.Flatten(0, 1), nn.GroupNorm(2, 4)),
    "batch norm": lambda: nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(4)).eval(),
    "lstm": lambda: First(nn.LSTM(4, 3)),
    "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0),
}


class First(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, value):
        return self.module(value)[0]


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.battery
def test_modules(name: str, frozen: bool) -> None:
    """What depends on parameters that require grad requires grad; frozen ones leave it at that."""
    module = MODULES[name]().double().requires_grad_(not frozen)
    value = torch.randn(3, 2, 4, dtype=torch.float64)

    def loss(inner):
        return module(inner).pow(3).mean()

    assert_same(thunder.grad(loss)(value), torch.func.grad(loss)(value))


@pytest.mark.parametrize("transform", [thunder.grad, lambda function: thunder.jit(torch.func.grad(function))])
@pytest.mark.slow
def test_operators_below_autograd(transform: Function) -> None:
    """The backward of an LSTM of single precision writes into tensors that it made while gradients are recorded."""
    module, value = nn.LSTM(4, 3), torch.randn(3, 2, 4)

    def loss(inner):
        return module(inner)[0].pow(3).sum()

    assert_same(transform(loss)(value), torch.func.grad(loss)(value))


def test_backward_through_gradients() -> None:
    """An outer autograd differentiates through the gradients: with respect to arguments, parameters and cotangents."""
    value, weight = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    cotangent = torch.randn(3, requires_grad=True)

    def function(a):
        return (a * weight).sin()

    leaves = (value, weight, cotangent)
    _, found = thunder.vjp(function)(value, cotangent)
    _, pull = torch.func.vjp(function, value)
    actual = torch.autograd.grad(found.square().sum(), leaves)
    assert_same(actual, torch.autograd.grad(pull(cotangent)[0].square().sum(), leaves))


def test_aliases_are_apart() -> None:
    """One tensor as two arguments; an argument also used from outside."""
    value = torch.randn(3)
    for argnums in (0, 1, (0, 1)):
        expected = torch.func.grad(lambda a, b: (a * b.exp() * value).sum(), argnums)(value, value)
        assert_same(thunder.grad(lambda a, b: (a * b.exp() * value).sum(), argnums)(value, value), expected)


@pytest.mark.parametrize("transform", [thunder.value_and_grad, thunder.vjp])
def test_an_input_is_returned(transform: Function) -> None:
    value = torch.tensor(3.0)
    arguments = (value,) if transform is thunder.value_and_grad else (value, torch.tensor(2.0))
    output, gradient = transform(lambda a: a)(*arguments)
    assert output is value
    assert gradient == (1.0 if len(arguments) == 1 else 2.0)


@pytest.mark.slow
def test_cotangents_of_any_layout_and_dtype() -> None:
    value = torch.randn(3, 4)
    cotangents = (
        torch.randn(4, 3).t(),
        torch.randn(()).expand(3, 4),
        torch.randn(3, 4).double(),
        torch.randn(3, 8)[:, ::2],
    )
    for function in (torch.sin, lambda a: a.reshape(12).reshape(3, 4).exp(), lambda a: a.t().contiguous().t().sin()):
        ours = thunder.vjp(function)
        for cotangent in cotangents:
            outputs, pull = torch.func.vjp(function, value)
            assert_same(ours(value, cotangent), (outputs, pull(cotangent)[0]))


def test_one_output_twice() -> None:
    def function(a):
        b = a.sin()
        return b, {"again": b, "input": a}

    value, cotangent = torch.randn(3), torch.randn(3)
    cotangents = (cotangent, {"again": cotangent * 2, "input": cotangent * 3})
    outputs, pull = torch.func.vjp(function, value)
    assert_same(thunder.vjp(function)(value, cotangents), (outputs, pull(cotangents)[0]))


def test_gradients_are_new_tensors() -> None:
    """Also where they are constant."""
    gradient = thunder.grad(torch.sum)
    for _ in range(3):
        found = gradient(torch.randn(3)).clone(memory_format=torch.contiguous_format)
        assert found.tolist() == [1.0, 1.0, 1.0]
        gradient(torch.randn(3)).data[:1].zero_()


@pytest.mark.slow
def test_trees() -> None:
    def function(tree, others):
        total = tree["a"][0] * tree["b"] + others[0]
        return total.square().sum(), ({"total": total}, [tree["b"]])

    arguments = {"a": (torch.randn(3),), "b": torch.randn(3)}, [torch.randn(3)]
    for argnums in (0, 1, (1, 0)):
        options = {"argnums": argnums, "has_aux": True}
        assert_same(thunder.grad(function, **options)(*arguments), torch.func.grad(function, **options)(*arguments))
        gradient, value = torch.func.grad_and_value(function, **options)(*arguments)
        assert_same(thunder.value_and_grad(function, **options)(*arguments), (value, gradient))


@pytest.mark.slow
def test_under_inference_mode_and_autocast() -> None:
    value, weight = torch.randn(3, 4), torch.randn(4, 2)

    def function(a):
        return F.linear(a, weight.t()).float().square().sum()

    gradient = thunder.grad(function)
    expected = torch.func.grad(function)(value)  # in inference mode, torch.func of PyTorch 2.11 gives zeros
    with torch.inference_mode():
        assert_same(gradient(value), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(gradient(value), torch.func.grad(function)(value))


def test_tensors_that_are_kept() -> None:
    """A module keeps what it computes inside of the function."""

    class Keeps(nn.Module):
        def forward(self, value):
            self.kept = value.sin()
            return (self.kept * value).sum()

    module, value = Keeps(), torch.randn(3)
    for _ in range(2):
        assert_same(thunder.grad(lambda a: module(a * 2))(value), torch.func.grad(lambda a: Keeps()(a * 2))(value))
        torch.testing.assert_close(module.kept, (value * 2).sin())


def test_writes_to_the_outside() -> None:
    """They are made once, after the gradients; `torch.func` refuses them."""
    total, value = torch.zeros(3), torch.randn(3)

    def function(a):
        total.add_(a.detach())
        return (a * total).sum()

    gradient = thunder.grad(function)
    torch.testing.assert_close(gradient(value), value)
    torch.testing.assert_close(gradient(value), 2 * value)
    torch.testing.assert_close(total, 2 * value)


ERRORS: dict[str, tuple[Function, tuple[Any, ...], type[Exception], str]] = {
    "not a scalar": (thunder.grad(torch.sin), (torch.ones(2),), RuntimeError, "scalar Tensor.* 1 dims.*vjp"),
    "not a tensor": (thunder.grad(lambda a: 3.0), (torch.ones(2),), RuntimeError, "return a Tensor.*float"),
    "not real": (thunder.grad(lambda a: a * 1j), (torch.tensor(1.0),), RuntimeError, "real Tensor.*complex64"),
    "a number": (thunder.grad(torch.sin), (2.0,), ValueError, "only tensors.*float"),
    "integers": (thunder.grad(torch.sum), (torch.ones(2, dtype=torch.int64),), RuntimeError, "floating point.*int64"),
    "no such argument": (thunder.grad(torch.sum, argnums=2), (torch.ones(2),), RuntimeError, "argnum=2.*1 positional"),
    "no pair": (thunder.grad(torch.sum, has_aux=True), (torch.ones(2),), RuntimeError, "tuple .output, aux."),
    "a number besides": (
        thunder.grad(lambda a: (a.sum(), 3), has_aux=True),
        (torch.ones(2),),
        RuntimeError,
        "auxiliary output.*int",
    ),
    "an argument is written": (
        thunder.grad(lambda a: a.mul_(2).sum()),
        (torch.ones(2),),
        RuntimeError,
        "leaf Variable",
    ),
    "integer outputs": (thunder.vjp(lambda a: a.long()), (torch.ones(2), torch.ones(2)), RuntimeError, "int64"),
    "no outputs": (thunder.vjp(lambda a: ()), (torch.ones(2), ()), RuntimeError, "non-empty output"),
    "another structure": (
        thunder.vjp(torch.sin),
        (torch.ones(2), (torch.ones(2),)),
        RuntimeError,
        "structure of the outputs",
    ),
    "another shape": (
        thunder.vjp(torch.sin),
        (torch.ones(2), torch.ones(3)),
        RuntimeError,
        r"cotangent 0.*\(3,\).*\(2,\)",
    ),
    "autograd metadata": (
        thunder.grad(lambda a: (a.mul(2).requires_grad_()).sum()),
        (torch.ones(2),),
        thunder.UnsupportedError,
        "requires_grad_ inside a function",
    ),
    "a hook on an argument": (
        thunder.grad(lambda a: (a.register_hook(lambda gradient: gradient * 2), a.sum())[1]),
        (torch.ones(2),),
        thunder.UnsupportedError,
        "register_hook on an argument",
    ),
    "no setup_context": (
        thunder.grad(lambda a: WithoutContext.apply(a).sum()),
        (torch.ones(2),),
        RuntimeError,
        "setup_context",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    function, arguments, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        function(*arguments)


def test_options() -> None:
    with pytest.raises(thunder.OptionError, match="cach"):
        thunder.grad(torch.sum, cach="no caching")
    with pytest.raises(thunder.OptionError, match=r"thunder.vjp takes a function"):
        thunder.vjp(3)
    function = thunder.grad(torch.sum, cache="no caching")
    function(torch.ones(2)), function(torch.ones(2))
    assert thunder.cache_misses(function) == 2


@pytest.mark.slow
def test_cache() -> None:
    """The second call is a hit; another shape, or another value that the function reads, compiles again."""
    factor = 2.0

    def function(a):
        return (a * factor).sum()

    gradient = thunder.grad(function)
    for _ in range(3):
        gradient(torch.ones(3))
    assert (thunder.cache_hits(gradient), thunder.cache_misses(gradient)) == (2, 1)
    assert gradient(torch.ones(4)).shape == (4,)
    assert thunder.cache_misses(gradient) == 2
    factor = 3.0
    assert gradient(torch.ones(3))[0] == 3.0
    assert thunder.cache_misses(gradient) == 3


def test_guards_are_on_the_program_alone() -> None:
    """Not on classes of this package, whose methods `dataclasses` generates."""
    gradient = thunder.grad(lambda a: a.sin().sum())
    gradient(torch.ones(3))
    (prologue,) = thunder.last_prologue_traces(gradient)
    assert not [guard for guard in prologue.guards if "Joint" in guard.describe() or "Surroundings" in guard.describe()]


def test_cache_of_a_gradient_from_outside() -> None:
    """The values that the inner function reads are guarded by the outer program as well."""
    factor = 2.0
    inner = thunder.grad(lambda a: (a * factor).sum())
    outer = thunder.jit(lambda a: inner(a) + 1)
    assert outer(torch.ones(3))[0] == 3.0
    factor = 5.0
    assert outer(torch.ones(3))[0] == 6.0


def test_eager_takes_over() -> None:
    function = thunder.grad(lambda a, n: (a**n).sum(), recompile_limit=1)
    function(torch.ones(3), 2)
    with pytest.warns(thunder.RecompileWarning, match="eager PyTorch runs this call"):
        assert_same(function(torch.full((3,), 2.0), 3), torch.full((3,), 12.0))


def test_within_torch_func() -> None:
    value = torch.rand(3)
    ours, theirs = thunder.grad(lambda a: a.sin().sum()), torch.func.grad(lambda a: a.sin().sum())
    assert_same(torch.func.grad(lambda a: ours(a).sum())(value), torch.func.grad(lambda a: theirs(a).sum())(value))
    assert_same(torch.vmap(ours)(value[None]), torch.vmap(theirs)(value[None]))
    assert_same(thunder.jit(torch.vmap(ours))(value[None]), torch.vmap(theirs)(value[None]))
    output, pull = thunder.jit(lambda a: (lambda out, pull: (out, pull(out)[0]))(*torch.func.vjp(torch.sin, a)))(value)
    assert_same((output, pull), (value.sin(), value.sin() * value.cos()))


@pytest.mark.slow
def test_traces_are_readable() -> None:
    """The user's functions, few lines, names that say what is whose gradient, nothing of torch.func's machinery."""
    weights = [torch.randn(8, 4), torch.randn(2, 8)]

    def perceptron(value):
        return F.linear(F.relu(F.linear(value, weights[0])), weights[1]).square().mean()

    gradient = thunder.grad(perceptron)
    value = torch.randn(5, 4)
    gradient(value)
    final = thunder.last_traces(gradient)[-1]
    source = str(final)
    assert len(final.symbols) <= 14, source
    assert source.count("torch.nn.functional.linear(") == 2
    assert "value_cotangent" in source
    assert "functorch" not in source
    assert "detach" not in source
    assert "perceptron: return F.linear" in source
    assert {line.location.function.rpartition(".")[2] for line in final.symbols if line.location} <= {
        "perceptron",
        "test_traces_are_readable",
    }


def test_names_and_signature() -> None:
    def energy(a, b=1.0):
        """An energy."""
        return (a * b).sum()

    gradient = thunder.value_and_grad(energy)
    assert gradient.__name__.startswith("value_and_grad(")
    assert inspect.signature(gradient) == inspect.signature(energy)
    assert list(inspect.signature(thunder.vjp(energy)).parameters) == ["primals", "cotangents"]
    assert thunder.explain(gradient) is not None


def test_hand_written_rules_are_used() -> None:
    """Torch functions are off while a call is recorded; what is found is cached, for other programs too."""
    derive._cache.clear()
    thunder.grad(lambda x: (x.square() * 2).sum())(torch.randn(3, 4))
    sources = {found.bound.symbol.name: found.source for found in derive._cache.results()}
    by_rule = dict.fromkeys(["torch.square", "torch.sum"], "a hand-written rule")
    assert sources == {**by_rule, "torch.mul": "PyTorch's autograd"}
