"""Gradients of programs with wrapper subclasses, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from wrapper_classes import Quantized, QuantizedByFunction, assert_same, numbers, pair

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.ir.trace import programs_of


def _reads_inner(x: Any) -> Any:
    y = x * 2
    return y, y.a * 3, y.a.requires_grad


def _without_gradients_inside(x: Tensor) -> Tensor:
    with torch.no_grad():
        mean = x.mean(0, keepdim=True)
    return (x - mean) * x.detach()


def _views(x: Tensor) -> Any:
    v = x.view(3, 4)
    return v.t() @ v, v


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Tensor]]] = {
    "pointwise": (lambda x: (x * x).sin(), lambda: pair(3, 4)),
    "used twice": (lambda x: x.sin() * x, lambda: pair(3, 4)),
    "views": (_views, lambda: pair(2, 6)),
    "inner tensors": (_reads_inner, lambda: pair(3)),
    "no_grad inside": (_without_gradients_inside, lambda: pair(3, 4)),
    "dropout": (lambda x: torch.dropout(x, 0.5, True) * x, lambda: pair(3, 4)),
    "inside of another": (lambda x: x.sin() * x, lambda: TwoTensor(pair(3), pair(3, seed=4))),
    "expanded": (lambda x: x.sum(0, keepdim=True).expand(3, 4) * x, lambda: pair(3, 4)),
    "expanded in the end": (lambda x: x.expand(5, 3, 4), lambda: pair(3, 4)),
    "softmax": (lambda x: torch.softmax(x, -1).square().sum(-1), lambda: pair(3, 4)),
}


def _first(value: Any) -> Tensor:
    return value[0] if isinstance(value, tuple) else value


@pytest.mark.parametrize("executors", [[], None], ids=["reference", "default"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_gradients_of_arguments(name: str, executors: Any) -> None:
    program, make = PROGRAMS[name]
    compiled = thunder.jit(program) if executors is None else thunder.jit(program, executors=executors)
    for _ in range(2):
        x, own = make().requires_grad_(), make().requires_grad_()
        torch.manual_seed(0)
        expected = program(x)
        state = torch.get_rng_state()
        torch.manual_seed(0)
        found = compiled(own)
        assert torch.equal(torch.get_rng_state(), state)
        assert_same(found, expected)
        for value in (expected, found):
            _first(value).sum().backward()
        assert type(own.grad) is TwoTensor
        assert_same(own, x)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("name", ["pointwise", "used twice", "no_grad inside"])
def test_without_gradients_in_the_end(name: str) -> None:
    program, make = PROGRAMS[name]
    compiled, x = thunder.jit(program), make().requires_grad_()
    compiled(x)
    with torch.no_grad():
        assert_same(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 2


def block() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8, bias=False), nn.GELU(), nn.Linear(8, 4, bias=False), nn.Softmax(-1))
    for layer in (layers[0], layers[2]):
        weight = layer.weight.detach()
        layer.weight = nn.Parameter(TwoTensor(weight.clone(), weight * 0.5))
    return layers


def train(run: Callable[[Tensor], Tensor], module: nn.Module, optimizer: Any, inputs: Callable[[int], Tensor]) -> Any:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    stepper, losses = optimizer(parameters), []
    for seed in range(3):
        loss = run(inputs(seed)).square().sum()
        loss.backward()
        stepper.step()
        stepper.zero_grad()
        losses.append(loss.detach())
    return losses, list(module.state_dict().values())


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, foreach=False),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_three_steps(optimizer: str) -> None:
    def inputs(seed: int) -> Tensor:
        return pair(2, 4, seed=seed)

    module, other = block(), block()
    compiled = thunder.jit(other)
    expected = train(module, module, OPTIMIZERS[optimizer], inputs)
    assert_same(train(compiled, other, OPTIMIZERS[optimizer], inputs), expected)
    assert thunder.cache_misses(compiled) == 1


class LowRank(nn.Module):
    """A frozen quantized layer, between layers that learn and beside a low-rank update."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.frozen, self.after = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.frozen.weight = nn.Parameter(kind.of(self.frozen.weight.detach()), requires_grad=False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        return self.after(torch.relu(self.frozen(x) + self.up(self.down(x))))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", [Quantized, QuantizedByFunction])
def test_low_rank_updates_of_quantized_weights(kind: Any, optimizer: str) -> None:
    def inputs(seed: int) -> Tensor:
        return numbers(3, 8, seed=seed)

    module, other = LowRank(kind), LowRank(kind)
    compiled = thunder.jit(other)
    expected = train(module, module, OPTIMIZERS[optimizer], inputs)
    assert_same(train(compiled, other, OPTIMIZERS[optimizer], inputs), expected)
    assert thunder.cache_misses(compiled) == 1


class Checkpointed(LowRank):
    """With the frozen layer and the update in a checkpoint region."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        return self.after(
            checkpoint(lambda x: torch.relu(self.frozen(x) + self.up(self.down(x))), x, use_reentrant=False)
        )


def test_operators_become_operations_of_both_traces() -> None:
    """Which executors claim, and which backward computes again in a checkpoint region."""
    saved = []
    for kind in (LowRank, Checkpointed):
        compiled = thunder.jit(kind(Quantized), executors=[])
        compiled(numbers(64, 8)).sum().backward()
        for trace in (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]):
            assert any(op.symbol.name == "torch.mul" for op in trace.symbols)  # the dequantized weight
            assert not any(programs_of(op.symbol) or "graph" in op.symbol.name for op in trace.symbols)
        training = thunder.explain(compiled).entries[0].training
        assert training.sources["recorded with it"] == 1
        saved.append(training.saved_bytes)
    assert saved[1] < saved[0]


def test_checkpoint_regions_with_wrappers() -> None:
    module, other = Checkpointed(Quantized), Checkpointed(Quantized)
    compiled = thunder.jit(other)
    runs = [(module, module), (compiled, other)]
    results = [train(run, each, OPTIMIZERS["SGD"], lambda seed: numbers(3, 8, seed=seed)) for run, each in runs]
    assert_same(results[1], results[0])
    assert thunder.cache_misses(compiled) == 1


class Halve(torch.autograd.Function):
    """The gradient is not that of forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 0.5


def test_autograd_functions_of_wrappers() -> None:
    def program(x: Tensor) -> Tensor:
        return Halve.apply(x.sin()) * x

    compiled = thunder.jit(program)
    for _ in range(2):
        x, own = pair(3).requires_grad_(), pair(3).requires_grad_()
        program(x).sum().backward()
        compiled(own).sum().backward()
        assert_same(own, x)


@pytest.mark.parametrize("program", [lambda x, y: x + y, lambda x, y: (x + y) * 2])
def test_gradients_have_memory_of_their_own(program: Callable[..., Any]) -> None:
    """Clipping writes each of them, and the caller may write the gradient that it passed."""
    found = []
    for run in (program, thunder.jit(program)):
        x, y = pair(3).requires_grad_(), pair(3).requires_grad_()
        result = run(x, y)
        given = pair(3)
        result.backward(given)
        for tensor in (x.grad, given.a, given.b):
            tensor.mul_(10)
        found.append((x.grad, y.grad))
    assert_same(found[1], found[0])


def test_second_derivatives_are_an_error() -> None:
    x = pair(3).requires_grad_()
    with pytest.raises(UnsupportedError, match="second derivatives"):
        torch.autograd.grad(thunder.jit(lambda x: x.sin())(x).sum(), x, create_graph=True)


class _LinearOfDequantized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any) -> Tensor:
        ctx.save_for_backward(weight)
        return torch.nn.functional.linear(x, weight.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        return gradient @ weight.to(gradient.dtype), None


class _DequantizedByTo(Quantized):
    """`to` gives a plain tensor, by ``__torch_function__``; its operator ``mm`` is of a transposed weight."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.to:
            return args[0].dequantize()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            return args[0] @ args[1].dequantize().t()
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_backward_of_an_autograd_function_calls_the_torch_functions_of_classes() -> None:
    compiled, weight = thunder.jit(_LinearOfDequantized.apply), _DequantizedByTo.of(numbers(4, 4))
    for _ in range(2):
        x, own = numbers(3, 4).requires_grad_(), numbers(3, 4).requires_grad_()
        _LinearOfDequantized.apply(own, weight).square().sum().backward()
        compiled(x, weight).square().sum().backward()
        assert_same(x, own)
