"""Outputs that are inputs, views or expanded; in-place operations on outputs and inside, and the gradients then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from tests.training.steps import assert_same, check, detached, leaf, loss_of, raised
from thunder_core.errors import UnsupportedError


def an_input(x: torch.Tensor) -> Any:
    return x, x * 2


def a_view_of_an_input(x: torch.Tensor) -> Any:
    return x[0], x.t(), x.view(-1) * 2


def two_views_of_an_intermediate(x: torch.Tensor) -> Any:
    y = x * 2
    return y[0], y.t(), y


def overlapping_views(x: torch.Tensor) -> Any:
    y = x.exp()
    return y[:2], y[1:], y.unfold(1, 2, 1)


def expanded(x: torch.Tensor) -> Any:
    return x.sin()[:, None].expand(3, 2, 4), x.sum().expand(5), x[:, :1].expand(3, 4)


def the_same_twice(x: torch.Tensor) -> Any:
    y = x.sin()
    return y, y, {"again": y}


def odd_strides(x: torch.Tensor) -> Any:
    return x.t().exp(), x[:, ::2].sin(), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last) * x.sum()


def split(x: torch.Tensor) -> Any:
    return (*x.split(2), *(x * 2).unbind(1), *x.cos().chunk(2))


def complex_parts(x: torch.Tensor) -> Any:
    z = torch.complex(x, x.sin())
    return z.real, z.imag, z.conj(), torch.view_as_real(z)


def no_gradients(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = x * 2
    return y, x.detach(), x > 0, x.argmax(), x.long(), x.round(), torch.zeros(3), x.sign(), x.shape, x.sum().detach()


def no_grad_view(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = x[0]
    return y * 2, x.detach()[1], x.sin()


def requires_grad_made_inside(x: torch.Tensor) -> Any:
    y = torch.ones(3).requires_grad_()
    return y * 2, x.detach().requires_grad_() * 3, x * 2


def zero_dimensional(x: torch.Tensor) -> Any:
    return x.sum(), x[0, 0], x.norm(), x.mean() * torch.tensor(2.0)


def empty(x: torch.Tensor) -> Any:
    return x[:0], x[:0].sum(), torch.cat([x[:0], x]), x[:, :0] @ x[:0, :].new_ones(0, 2)


PROGRAMS = [
    an_input, a_view_of_an_input, two_views_of_an_intermediate, overlapping_views, expanded, the_same_twice,
    odd_strides, split, complex_parts, no_gradients, no_grad_view, requires_grad_made_inside, zero_dimensional, empty,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_outputs(program: Callable[..., Any]) -> None:
    check(program, lambda: (leaf(3, 4),))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_outputs_of_an_input_that_is_no_leaf(program: Callable[..., Any]) -> None:
    def scenario(function: Any) -> Any:
        x = leaf(3, 4)
        for _ in range(2):
            outputs = function(x.sin())
            loss_of(outputs).backward()
        return x, [isinstance(o, torch.Tensor) and (o.requires_grad, o.is_leaf, o.stride()) for o in _flat(outputs)]

    assert_same(lambda: program, scenario)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128], ids=str
)
def test_dtypes(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x @ y, (x * y.t()).sum(0), x.to(torch.complex64 if dtype.is_complex else torch.float32) * 2, x.abs()

    check(program, lambda: (leaf(3, 4, dtype=dtype), leaf(4, 3, dtype=dtype)))


def test_complex_parameters() -> None:
    class Rotation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.phase = nn.Parameter(torch.randn(4, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> Any:
            return (x * self.phase).real, torch.fft.fft(x * self.phase.conj()).abs()

    check(Rotation(), lambda: (leaf(3, 4),))


def parts_twice(x: torch.Tensor) -> Any:
    z = torch.complex(x, x * 2)
    lazy = z.conj()
    return z.real, z.real.sum(), z.imag, z.imag.prod(), lazy.real * 2, lazy.real.exp(), lazy.imag * 2, lazy.imag.exp()


def complex_views_twice(x: torch.Tensor) -> Any:
    pairs = (x * 2).view(3, 2, 2)
    first, second = torch.view_as_complex(pairs), torch.view_as_complex(pairs)
    return first * 2, second * 2, torch.view_as_real(first).exp(), torch.view_as_real(first).sum()


def conjugate_of_a_view(x: torch.Tensor) -> Any:
    z = torch.view_as_complex((x * 2).view(3, 2, 2))
    return (z * z.conj()).real, z.conj().imag * 2, torch.view_as_real(z.conj().resolve_conj()).exp()


@pytest.mark.parametrize("program", [parts_twice, complex_views_twice, conjugate_of_a_view])
def test_real_and_complex_views(program: Callable[..., Any]) -> None:
    check(program, lambda: (leaf(3, 4),))


@pytest.mark.parametrize("lazy", [torch.conj, lambda g: g.conj().imag.mul(1j), lambda g: torch.complex(g.real, g.imag)])
def test_a_lazy_conjugate_as_the_cotangent(lazy: Callable[..., Any]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(x).clone()

    x, cotangent = leaf(3, 2), torch.randn(3, dtype=torch.complex64)
    results = [torch.autograd.grad(f(x), x, lazy(cotangent))[0] for f in (program, thunder.jit(program))]
    assert torch.equal(*results)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (1,), (3, 0, 2)], ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    check(lambda x: (x.exp() * 2, x.sum(), x.reshape(-1)), lambda: (leaf(*shape),))


def _flat(outputs: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(outputs)


def mutate_output(outputs: Any) -> None:
    outputs[0].mul_(3)


def mutate_second(outputs: Any) -> None:
    outputs[1].add_(1).sin_()


def mutate_a_part(outputs: Any) -> None:
    outputs[0][0] = 7.0
    outputs[1].view(-1)[1:3].zero_()


def mutate_by_input(outputs: Any) -> None:
    outputs[0].copy_(outputs[1].detach().sum())


AFTERWARDS = [mutate_output, mutate_second, mutate_a_part, mutate_by_input]


def fresh_outputs(x: torch.Tensor) -> Any:
    return x * 2, x.sin()


def saved_output(x: torch.Tensor) -> Any:
    """The backward of exp needs the output, so that writing to it is an error."""
    return x.exp(), x * 2


def views_of_one(x: torch.Tensor) -> Any:
    y = x * 2
    return y[0], y[1:]


def base_and_view(x: torch.Tensor) -> Any:
    y = x * 2
    return y, y.view(-1)


def input_view(x: torch.Tensor) -> Any:
    return x[0], x.view(-1)[3:]


def multi_view(x: torch.Tensor) -> Any:
    return (x * 2).unbind(0)


def expanded_output(x: torch.Tensor) -> Any:
    return x.sum(0, keepdim=True).expand(3, 4), x * 2


AFTER = [fresh_outputs, saved_output, views_of_one, base_and_view, input_view, multi_view, expanded_output]


@pytest.mark.parametrize("mutate", AFTERWARDS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("program", AFTER, ids=lambda program: program.__name__)
def test_in_place_on_outputs(program: Callable[..., Any], mutate: Callable[[Any], None]) -> None:
    """Which outputs can be written to, the errors for the others, and the gradients after writes."""

    def scenario(function: Any) -> Any:
        seen = []
        for _ in range(2):
            source = leaf(3, 4)
            x = source.cos()
            outputs = function(x)
            error = raised(lambda: mutate(outputs))  # noqa: B023
            seen.append((error, raised(loss_of(outputs).backward), source, detached((x, outputs))))
        return seen

    assert_same(lambda: program, scenario)


def test_in_place_on_an_output_that_is_a_leaf_input() -> None:
    def scenario(function: Any) -> Any:
        x = leaf(3, 4)
        outputs = function(x)
        seen = [raised(lambda: outputs[0].mul_(2)), raised(lambda: outputs[1].mul_(2))]
        with torch.no_grad():
            outputs[0].mul_(2)
        return seen, x

    assert_same(lambda: lambda x: (x, x[0]), scenario)


def hidden_and_loss(x: torch.Tensor) -> Any:
    h = x * 2
    return h, h.sin(), h.detach() * x, h[0]


def _retained(program: Callable[..., Any], used: tuple[int, ...]) -> Any:
    x = leaf(3, 4)
    outputs = program(x)
    for output in outputs:
        output.retain_grad()
    torch.stack([outputs[place].square().sum() for place in used]).sum().backward()
    return x.grad, [output.grad for output in outputs]


@pytest.mark.parametrize("used", [(0,), (2,), (3,), (0, 2), (0, 3), (2, 3), (0, 2, 3)])
def test_retained_gradients(used: tuple[int, ...]) -> None:
    assert_same(lambda: hidden_and_loss, lambda program: _retained(program, used))


@pytest.mark.parametrize("used", [(1,), (0, 1)])
def test_retained_gradient_of_an_output_that_another_one_is_computed_from(used: tuple[int, ...]) -> None:
    """It would lack what comes by way of the other."""
    with pytest.raises(UnsupportedError, match="computed from it"):
        _retained(thunder.jit(hidden_and_loss), used)


def test_hook_on_an_output_that_another_one_is_computed_from() -> None:
    hidden, other, *_ = thunder.jit(hidden_and_loss)(leaf(3, 4))
    hidden.register_hook(torch.cos)
    with pytest.raises(UnsupportedError, match="computed from it"):
        (hidden.sum() + other.sum()).backward()
