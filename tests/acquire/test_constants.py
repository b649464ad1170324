"""Values that depend on no input are computed while a program is recorded, under the modes of their calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import DataDependentError


def test_a_constant_has_the_rounding_of_its_autocast_region() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        a = torch.full((8, 8), 0.1234567)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            product = (a @ a)[0, 0]
        return x * product.item()

    x = torch.randn(3)
    assert torch.equal(thunder.jit(program)(x), program(x))


def test_sizes_in_constant_tensors_differ_between_equal_calls() -> None:
    """PyTorch's fake tensors carry the value of a small constant, which the metadata in a call's key lacks."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...], tuple[int, ...]]:
        few, many = torch.prod(torch.tensor([2])), torch.tensor(3) * 5
        first, second = torch.arange(0, few), torch.arange(0, many)
        return x.sum() + first, first.shape, second.view(int(many), 1).shape

    def another(x: torch.Tensor) -> tuple[int, ...]:
        return torch.arange(0, torch.tensor(7) + 1).shape

    x = torch.randn(3)
    assert torch.equal(thunder.jit(program)(x)[0], program(x)[0])
    assert thunder.jit(program)(x)[1:] == program(x)[1:]
    assert thunder.jit(another)(x) == another(x)


def test_a_checkpoint_region_reads_a_constant_from_outside() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        factor = torch.tensor(2.0) * 3
        return checkpoint(lambda y: y * factor.item(), x, use_reentrant=False)

    x = torch.randn(3, requires_grad=True)
    assert torch.equal(thunder.jit(program)(x), program(x))


def test_a_size_in_a_tensor_is_read_in_a_region_that_writes_it() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        size = torch.tensor(x.shape[0])

        def region(y: torch.Tensor) -> torch.Tensor:
            size.view(1).add_(1)
            return y * int(size)

        return checkpoint(region, x, use_reentrant=False)

    compiled = thunder.jit(program, dynamic=True)
    for length in (3, 4, 5):
        x = torch.randn(length, requires_grad=True)
        assert torch.equal(compiled(x), program(x))
        y = torch.randn(length, requires_grad=True)
        y.sin().sum().backward()  # the region has ended: it has no hooks on what other code saves
        torch.testing.assert_close(y.grad, y.cos())


@torch.library.custom_op("thunder_tests::draws_and_raises", mutates_args=())
def draws_and_raises(x: torch.Tensor) -> torch.Tensor:
    torch.rand(3)
    if x.sum() > 0:
        raise ValueError("after a draw")
    return x.clone()


def test_a_call_on_constants_that_draws_and_raises_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(ValueError):
            draws_and_raises(torch.ones(2))
        return x + 1

    before = torch.get_rng_state()
    with pytest.raises(DataDependentError, match="draws random numbers"):
        thunder.jit(program)(torch.ones(2))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, two: x[:two],
        lambda x, two: torch.tensor_split(x, two)[1],
        lambda x, two: torch.randint(0, 5, (two,)) * 0 + x[:2],
    ],
    ids=["slice", "split", "draw"],
)
def test_constants_in_place_of_sizes_and_positions(program: Callable[..., torch.Tensor]) -> None:
    """They need no value of the inputs, also where the call takes tensors that are none or draws."""
    x = torch.arange(4.0)
    compiled = thunder.jit(lambda x: program(x, torch.tensor(2)), sharp_edges="error")
    assert torch.equal(compiled(x), program(x, 2))
