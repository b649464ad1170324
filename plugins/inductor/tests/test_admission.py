"""Tensors that reach a compiled region and that it was not compiled for: what eager computes, never other memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import thunder
from thunder_plugin_inductor import compilers
from thunder_plugin_inductor.compiled_region import CompiledRegion

pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def _values() -> torch.Tensor:
    return torch.linspace(-2, 2, 12).reshape(3, 4)


def _gradient(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    (gradient,) = torch.autograd.grad(result.sum(), x)
    return gradient


# ---------------------------------------------------------------- lazy tensors


def zeros_inside(compile: Compile) -> Any:
    """The derivative of `torch.sgn` is a tensor of zeros without memory."""
    x = _values().requires_grad_()
    y = compile(lambda x: (x.sin() * 2).cos().sgn())(x)
    return y, _gradient(y, x)


def zeros_as_argument(compile: Compile) -> Any:
    return compile(lambda x: x.cos().sgn() + 1)(torch._efficientzerotensor((3, 4)))


def negative_inside(compile: Compile) -> Any:
    z = torch.complex(_values(), _values() + 1)
    return compile(lambda z: z.conj().imag * 2 + 1)(z)


def negative_of_a_transform(compile: Compile) -> Any:
    return compile(lambda x: torch.fft.rfft(x).conj().imag.exp() * 2)(_values())


def negative_argument(compile: Compile) -> Any:
    run = compile(lambda x: x.exp() * 2 + x)
    return [run(value) for value in (_values(), torch._neg_view(_values()), _values())]


# ---------------------------------------------------------------- what changes between forward and backward


class _Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(0.1, 1, 64 * 64).reshape(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.w.sin() * self.w).sum()


def _changed(compile: Compile, change: Callable[[nn.Module], Any]) -> Any:
    """The gradients of two steps; the module changes between forward and backward of the first."""
    module = _Weighted()
    run = compile(module)
    gradients = []
    for step in range(2):
        result = run(torch.ones(64, 64))
        if step == 0:
            change(module)
        result.backward()
        gradients.append(module.w.grad)
        module.w.grad = None
    return gradients


def cast_module(compile: Compile) -> Any:
    return _changed(compile, lambda module: module.to(torch.bfloat16))


def cast_data(compile: Compile) -> Any:
    def change(module: Any) -> None:
        module.w.data = module.w.data.half()

    return _changed(compile, change)


def transposed_data(compile: Compile) -> Any:
    def change(module: Any) -> None:
        module.w.data = module.w.data.t().contiguous().t()

    return _changed(compile, change)


def cast_by_hooks(compile: Compile) -> Any:
    module = _Weighted()
    run = compile(module)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.to(torch.bfloat16), lambda t: t):
        result = run(torch.ones(64, 64))
    result.backward()
    return module.w.grad


class _Casting(TorchDispatchMode):
    """Casts the results of matmuls to bfloat16."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return result.to(torch.bfloat16) if function is torch.ops.aten.mm.default else result


def _mlp(compile: Compile, mode: Any) -> Any:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh())
    x = _values().repeat(1, 2).requires_grad_()
    result = compile(module)(x).square().sum()
    with mode:
        result.backward()
    return [x.grad, *[parameter.grad for parameter in module.parameters()]]


def cast_by_a_mode(compile: Compile) -> Any:
    return _mlp(compile, _Casting())


def batched_cotangents(compile: Compile) -> Any:
    x = _values().requires_grad_()
    y = compile(lambda x: x.sin() * x.cos() * 2)(x)
    cotangents = torch.eye(12).reshape(12, 3, 4)
    return torch.autograd.grad(y, x, cotangents, is_grads_batched=True)


PROGRAMS = [
    *(zeros_inside, zeros_as_argument, negative_inside, negative_of_a_transform, negative_argument),
    *(cast_module, cast_data, transposed_data, cast_by_hooks, cast_by_a_mode, batched_cotangents),
]


def _seen(program: Callable[[Compile], Any], compile: Compile) -> Any:
    """The result of a program, or the class of its exception."""
    try:
        return program(compile)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.slow
def test_program(program: Callable[[Compile], Any]) -> None:
    expected = _seen(program, lambda function: function)
    actual = _seen(program, lambda function: thunder.jit(function, executors=["inductor"]))
    if isinstance(expected, type):
        assert actual is expected
    else:
        torch.testing.assert_close(actual, expected, rtol=2e-2 if "cast" in program.__name__ else 1e-4, atol=2e-2)


@pytest.mark.slow
def test_modes_of_the_dispatcher_see_operators() -> None:
    """The floating-point operations of backward are counted as in eager."""
    counts = []
    for compile in (lambda function: function, lambda function: thunder.jit(function, executors=["inductor"])):
        mode = FlopCounterMode(display=False)
        _mlp(compile, mode)
        counts.append(mode.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_first_call_with_misaligned_arguments() -> None:
    """A region that returns its argument returns a copy of it, also after a first call that copied the argument."""
    region = CompiledRegion(lambda arguments: (arguments.pop(),), (0,), lambda: ((1,),))
    memory = torch.arange(65, dtype=torch.float32)
    for x in (memory[1:], memory[:64].clone()):
        (result,) = region(x)
        assert result.data_ptr() != x.data_ptr()
        torch.testing.assert_close(result, x)
