"""Lines that access memory by strides, and inputs that share memory: Inductor chooses other strides for its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_plugin_inductor import compilers
from thunder_plugin_inductor.compiled_region import CompiledRegion
from thunder_plugin_inductor.fusible import BY_STRIDES

pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)


def of_a_part(x: torch.Tensor) -> Any:
    y = (x + 1)[:, 1:]
    return y.as_strided((2, 2), (4, 1)) * 2, torch.as_strided(y, (2, 2), (4, 1), 0) * 3


def of_a_transposed(x: torch.Tensor) -> Any:
    y = x.t() * 2
    return y.diagonal().as_strided((2,), (5,)) + y.sum()


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {"a part": of_a_part, "transposed": of_a_transposed}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_values_seen_by_strides(name: str) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    results = []
    program = thunder.jit(PROGRAMS[name], executors=["inductor"])
    for run in (program, PROGRAMS[name]):
        values = torch.utils._pytree.tree_leaves(run(x))
        results.append([*values, *torch.autograd.grad(sum(value.sum() for value in values), x)])
    torch.testing.assert_close(*results)
    assert BY_STRIDES in str(thunder.explain(program).decisions)


_INDICES = torch.arange(12).reshape(1, 1, 3, 4).expand(2, 5, 3, 4)
ORDERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "roll": lambda x: torch.roll(x, -1, 0) * 2,
    "rolls": lambda x: torch.roll(x, (1, 2), (0, 1)) * 2,
    "channel_shuffle": lambda x: torch.nn.functional.channel_shuffle(x * 2, 5),
    "max_unpool2d": lambda x: torch.nn.functional.max_unpool2d(x * 2, _INDICES, 1),
    "copysign": lambda x: torch.copysign(x * 2, x[0, 0]),
    "power": lambda x: 2 ** (x * 2),
    "logsigmoid": lambda x: torch.nn.functional.logsigmoid(x * 2),
}
"""Functions that have other strides in PyTorch's metadata than in its kernels."""


@pytest.mark.slow
def test_memory_order_is_that_of_eager() -> None:
    """One program of all, seen by strides, and their gradients."""

    def program(x: torch.Tensor) -> Any:
        results = [function(x) for function in ORDERS.values()]
        return results, [result.as_strided((5, 4), (4, 1), 0) * 2 for result in results]

    compiled, x = thunder.jit(program, executors=["inductor"]), torch.randn(2, 5, 3, 4)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    (ours, ours_seen), (theirs, theirs_seen) = compiled(x), program(x)
    for name, one, other in zip(ORDERS, ours, theirs, strict=True):
        assert one.stride() == other.stride(), name
    torch.testing.assert_close(ours_seen, theirs_seen)
    losses = (sum(each.square().sum() for each in seen) for seen in (ours_seen, theirs_seen))
    torch.testing.assert_close(*[torch.autograd.grad(loss, x)[0] for loss in losses])


def shown_twice(whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors in one memory, neither of them a view to autograd."""
    return whole.as_strided((3, 4), (16, 1), 1).detach(), whole.as_strided((2, 4), (16, 1), 17).detach()


def write_both(one: torch.Tensor, other: torch.Tensor, added: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    detached = other.detach().add_(1)
    one.add_(added.clone())
    detached[0] = row[0]
    return added


def keep_what_is_overwritten(
    one: torch.Tensor, other: torch.Tensor, added: torch.Tensor, row: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    before = other * 1
    one.mul_(2)
    other[1] = added[0]
    return before, one + 1, other.sum() + row.sum()


@pytest.mark.parametrize("program", [write_both, keep_what_is_overwritten])
@pytest.mark.slow
def test_writes_to_memory_that_two_inputs_show(program: Callable[..., Any]) -> None:
    added, row = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    memory = torch.randn(8, 16)
    seen = []
    for run in (thunder.jit(program, executors=["inductor"]), program):
        whole = memory.clone()
        seen.append((run(*shown_twice(whole), added, row), whole))
    torch.testing.assert_close(*seen)


def test_inputs_at_any_address() -> None:
    """Triton kernels are compiled for addresses that are multiples of 16; others are copied to one."""
    given: list[torch.Tensor] = []

    def kernel(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        given.extend(inputs)
        return [inputs[1] * 2]

    region = CompiledRegion(kernel, (0, 1, 2, 3), lambda: [(1,)])
    whole = torch.arange(48.0)
    inputs = [whole[1:13].view(3, 4).t(), whole[1:5], whole[3:7].as_strided((2, 3), (1, 1)), whole[4:8]]
    (result,) = region(*inputs)
    assert torch.equal(result, inputs[1] * 2)
    for tensor, input in zip(given, inputs, strict=True):
        assert tensor.data_ptr() % 16 == 0
        assert tensor.stride() == input.stride()
        assert torch.equal(tensor, input)
    assert given[3] is inputs[3]
