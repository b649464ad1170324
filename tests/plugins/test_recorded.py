"""Python functions whose calls are one line of a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import thunder
from tests.plugins import operations
from thunder_core.executors import Claim, OperatorExecutor


def _names(function: Callable[..., Any], stage: int = 0) -> list[str]:
    return [line.symbol.name for line in thunder.last_traces(function)[stage].symbols]


def _inputs(requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 8, requires_grad=requires_grad), torch.randn(8, requires_grad=requires_grad)


def test_eager_calls_are_plain_calls() -> None:
    x, weight = _inputs()
    assert torch.equal(operations.swish(x), operations.plain(x))
    assert operations.rms_norm.__name__ == "rms_norm"
    assert operations.rms_norm.__doc__ == "Divides by the root of the mean square."
    assert list(inspect.signature(operations.rms_norm).parameters) == ["x", "weight", "eps"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
        operations.rms_norm(x, weight, epsilon=1.0)


def test_a_call_is_one_line() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return operations.rms_norm(x, weight, eps=1e-3) + 1

    compiled = thunder.jit(program)
    x, weight = _inputs()
    assert torch.equal(compiled(x, weight), program(x, weight))
    assert _names(compiled) == ["tests.plugins.operations.rms_norm", "torch.add"]
    assert _names(compiled, -1)[0] == "tests.plugins.operations.rms_norm"
    assert "tests.plugins.operations.rms_norm(x, weight, eps=0.001)" in str(thunder.last_traces(compiled)[0])


def test_its_gradient_is_eagers() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return operations.rms_norm(x.sin(), weight).cos().sum()

    compiled = thunder.jit(program)
    inputs = _inputs(requires_grad=True)
    expected, found = program(*inputs), compiled(*inputs)
    assert torch.equal(found, expected)
    gradients = torch.autograd.grad(found, inputs)
    for gradient, other in zip(gradients, torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-6, atol=1e-6)
    assert _names(compiled).count("tests.plugins.operations.rms_norm") == 1


def test_results_may_be_nested() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        sine, rest = operations.sine_and_cosine(x)
        return sine + rest["cosine"]

    compiled, x = thunder.jit(program), torch.randn(4)
    assert torch.equal(compiled(x), program(x))
    assert _names(compiled) == ["tests.plugins.operations.sine_and_cosine", "torch.add"]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_it_may_write_to_its_arguments(requires_grad: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.cos()
        view = y[1:]
        operations.double_(y)
        return view.sum() + y.sin().sum()

    compiled, x = thunder.jit(program), torch.randn(4, requires_grad=requires_grad)
    expected, found = program(x), compiled(x)
    torch.testing.assert_close(found, expected)
    if requires_grad:
        torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(expected, x))


def test_random_numbers_are_drawn_at_each_call() -> None:
    compiled, x = thunder.jit(lambda x: operations.shifted_noise(x)), torch.zeros(4)
    torch.manual_seed(1)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(1)
    assert torch.equal(first, operations.shifted_noise(x))
    assert torch.equal(second, operations.shifted_noise(x))


def _autocast(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return operations.projection(x, weight)


def _checkpoint(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    result = torch.utils.checkpoint.checkpoint(operations.projection, x, weight, use_reentrant=False)
    assert isinstance(result, torch.Tensor)
    return result


def _vmap(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    result = torch.func.vmap(operations.swish)(x) @ weight
    return result + torch.func.grad(lambda y: operations.swish(y).sum())(x)


@pytest.mark.parametrize("program", [_autocast, _checkpoint, _vmap])
def test_among_pytorchs_own_transformations(program: Callable[..., torch.Tensor]) -> None:
    inputs = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    compiled = thunder.jit(program)
    expected, found = program(*inputs), compiled(*inputs)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found.float().sum(), inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected.float().sum(), inputs))


def test_it_has_second_derivatives() -> None:
    compiled, x = thunder.jit(lambda x: operations.swish(x).sum()), torch.randn(4, requires_grad=True)
    (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    (plain,) = torch.autograd.grad(operations.plain(x).sum(), x, create_graph=True)
    torch.testing.assert_close(first, plain)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x), torch.autograd.grad(plain.sum(), x))


def test_executors_claim_it() -> None:
    calls = []

    def fast(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return torch.nn.functional.silu(x)

    executor = OperatorExecutor("mine", (Claim(operations.swish, fast),))
    compiled, x = thunder.jit(lambda x: operations.swish(x) + 1, executors=[executor]), torch.randn(4)
    torch.testing.assert_close(compiled(x), operations.swish(x) + 1)
    assert calls == [x.shape]


def test_a_rewrite_may_call_it() -> None:
    executor = OperatorExecutor("mine", (Claim(torch.nn.functional.silu, rewrite=lambda x: operations.swish(x)),))
    compiled, x = thunder.jit(torch.nn.functional.silu, executors=[executor]), torch.randn(4)
    torch.testing.assert_close(compiled(x), torch.nn.functional.silu(x))
    assert _names(compiled, -1)[0] == "tests.plugins.operations.swish"


def test_under_a_mode_of_the_programs_own_its_calls_are_recorded() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.device("cpu"):
            return operations.swish(x)

    compiled, x = thunder.jit(program), torch.randn(4)
    assert torch.equal(compiled(x), program(x))
    assert _names(compiled) == ["torch.sigmoid", "torch.mul"]


def test_a_default_device_reaches_it() -> None:
    with torch.device("meta"):
        assert operations.shifted_noise(torch.zeros(2)).device.type == "meta"


def test_no_dispatch_mode_sees_a_difference() -> None:
    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.randn(3)
    with Log() as recorded:
        operations.swish(x)
    with Log() as plain:
        operations.plain(x)
    assert recorded.calls == plain.calls == ["aten.sigmoid.default", "aten.mul.Tensor"]


def test_a_local_function() -> None:
    from thunder_core.symbols import recorded

    @recorded
    def local(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos()

    compiled, x = thunder.jit(lambda x: local(x) + 1), torch.randn(4, requires_grad=True)
    expected, found = local(x) + 1, compiled(x)
    assert torch.equal(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x), rtol=1e-6, atol=1e-6
    )
    assert len(thunder.last_traces(compiled)[0].symbols) == 2
