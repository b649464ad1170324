"""Which forward a backward belongs to."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_plugin_debug import Bisect
from thunder_plugin_debug.forward_arguments import WithArguments, pass_arguments

REFERENCE = Symbol("torch.mul", torch.mul)
FORWARD = Symbol("kernels.forward", torch.mul, executor="kernels", reference=REFERENCE)
BACKWARD = Symbol(
    "kernels.backward", torch.mul, tags=frozenset({Tag.BACKWARD}), executor="kernels", reference=REFERENCE
)


def tensor(name: str) -> TensorProxy:
    return TensorProxy(name, (2,), (1,), torch.float32, torch.device("cpu"), False, hash(name))


def forward(output: str, *args: Any, residual: str | None = None) -> BoundSymbol:
    """A call of which the first argument and perhaps a new value are residuals."""
    made = (None,) if residual is None else (None, tensor(residual))
    return BoundSymbol(FORWARD, args, {}, (tensor(output), made))


def backward(*residuals: Any) -> BoundSymbol:
    return BoundSymbol(BACKWARD, (residuals, (tensor("g"),), (True, True)), {}, (tensor("dx"), tensor("dy")))


def kept(*lines: BoundSymbol) -> list[Any]:
    """For each backward the arguments that it is handed, or why it has none."""
    trace = Trace("joint", (), lines, (), Stage.FUNCTIONAL, "test", Context(grad_enabled=False, inference=False))
    result = pass_arguments(trace, lambda bound: True, "bisect")
    assert [bound for bound in result.symbols if bound.symbol is FORWARD] == [
        bound for bound in lines if bound.symbol is FORWARD
    ]
    found = []
    for bound in result.symbols:
        target = bound.symbol.target
        if isinstance(target, WithArguments):
            assert target.name == "kernels.backward"
            found.append(target.why_not or bound.args[0][1])
    return found


X, Y, Z = tensor("x"), tensor("y"), tensor("z")


def test_one_call() -> None:
    assert kept(forward("a", X, Y), backward(X)) == [(X, Y)]


def test_as_many_backwards_as_forwards() -> None:
    """In reverse order, though residuals fit both."""
    assert kept(forward("a", X, 2), forward("b", X, 3), backward(X), backward(X)) == [(X, 3), (X, 2)]


def test_fewer_backwards() -> None:
    first, second = forward("a", X, Y, residual="r"), forward("b", X, Z, residual="s")
    assert kept(first, second, backward(X, tensor("r"))) == [(X, Y)]
    assert kept(first, second, backward(X, tensor("s"))) == [(X, Z)]


def test_more_backwards() -> None:
    """Equal calls were merged."""
    assert kept(forward("a", X, Y), backward(X), backward(X)) == [(X, Y), (X, Y)]


@pytest.mark.parametrize("lines", [(forward("a", X, 2), forward("b", X, 3), backward(X)), (backward(X),)])
def test_what_cannot_be_told(lines: tuple[BoundSymbol, ...]) -> None:
    assert kept(*lines) == ["it is unknown which call of forward belongs to it"]


def product_forward(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y, (x, y)


def product_backward(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    return cotangents[0] * residuals[1], cotangents[0] * residuals[0]


def test_equal_calls_in_a_program() -> None:
    def twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for power in (1, 2):
            total = total + torch.mul(x, y).pow(power).sum()
        return total

    kernels = OperatorExecutor(
        "kernels", (Claim(torch.mul, derivative=DerivativePair(product_forward, product_backward)),)
    )
    bisect = Bisect(include=("the gradient of torch.mul",))
    compiled = thunder.jit(twice, executors=[kernels], transforms=[bisect])
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    compiled(x, y).backward()
    assert bisect.skipped == ()
    assert bisect.comparisons == 2
