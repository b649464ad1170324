"""Views by size, stride and offset, where executors fuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_testing.pointwise import Pointwise

ROWS = torch.contiguous_format
DIRECT = "torch._C._dynamo.guards._reinterpret_tensor"


def lines(compiled: Any, *, backward: bool = False) -> list[str]:
    traces = thunder.last_backward_traces(compiled) if backward else thunder.last_traces(compiled)
    return [line.symbol.name for line in traces[-1].symbols]


def heads(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    _, key, value = (x @ weight).split(4, dim=-1)
    return torch.bmm(key.unflatten(-1, (2, 2)).transpose(0, 1), value.unflatten(-1, (2, 2)).permute(1, 2, 0))


def test_chains_become_one_call() -> None:
    x, weight = torch.randn(3, 5), torch.randn(5, 12)
    compiled = thunder.jit(heads, executors=[Pointwise()])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight), heads(x, weight), rtol=0, atol=0)
    assert lines(compiled) == ["torch.matmul", DIRECT, DIRECT, "torch.bmm"]
    assert DIRECT not in str(thunder.last_traces(thunder_without_fusion(heads, x, weight))[-1])


def test_sizes_that_vary() -> None:
    weight = torch.randn(5, 12)
    compiled = thunder.jit(heads, executors=[Pointwise()], dynamic=True)
    with torch.no_grad():
        for rows in (3, 7, 4):
            x = torch.randn(rows, 5)
            torch.testing.assert_close(compiled(x, weight), heads(x, weight), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1
    assert lines(compiled) == ["torch.matmul", DIRECT, DIRECT, "torch.bmm"]


def thunder_without_fusion(function: Callable[..., Any], *inputs: Any) -> Any:
    compiled = thunder.jit(function, executors=[])
    compiled(*inputs)
    return compiled


def through_matrix(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x @ weight
    y.view(-1)[1:3] = 0  # a line that writes what others view
    return torch.mm(y.t(), y)


STAY: dict[str, Callable[..., Any]] = {
    "returned": lambda x, weight: (x @ weight).t()[1:],
    "of what no product and no region made": lambda x, weight: torch.cumsum(x, 0).t()[1:].cumsum(1),
    "complex": lambda x, weight: torch.mm(x, weight).to(torch.complex64).conj().t()[1:].cumsum(1),
    "another dtype": lambda x, weight: torch.mm(x, weight).view(torch.int32)[1:].cumsum(1),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str) -> None:
    x, weight = torch.randn(3, 5), torch.randn(5, 12)
    compiled = thunder.jit(STAY[name], executors=[Pointwise()])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight), STAY[name](x, weight))
    assert DIRECT not in lines(compiled)


def test_what_is_written_has_its_views() -> None:
    x, weight = torch.randn(3, 5), torch.randn(5, 12)
    compiled = thunder.jit(through_matrix, executors=[Pointwise()])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight), through_matrix(x, weight))


def test_views_that_autograd_records_stay() -> None:
    x = torch.randn(3, 5, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x @ x.t()).t()[1:].cumsum(0)
        return torch.autograd.grad(y.sum(), x)[0]

    compiled = thunder.jit(function, executors=[Pointwise()])
    torch.testing.assert_close(compiled(x), function(x))
    assert DIRECT not in lines(compiled)


def test_backward_of_linear_layers() -> None:
    def function(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(nn.functional.linear(x, first) * 2, second)

    shapes = (2, 3, 4), (6, 4), (4, 6)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    compiled = thunder.jit(function, executors=[Pointwise()])
    found, expected = (torch.autograd.grad(call(*inputs).square().sum(), inputs) for call in (compiled, function))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    names = lines(compiled, backward=True)
    assert DIRECT in names
    assert not {"torch.t", "torch.reshape"} & set(names)


def test_saved_tensors_that_come_back_in_other_strides() -> None:
    """Hooks may give contiguous copies; views of them are made from strides that the trace knows."""

    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(torch.mm(x, weight).t())  # transposed in memory
        return torch.mm(y, y.t()).sin()

    x, weight = torch.randn(3, 5, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    compiled = thunder.jit(function, executors=[Pointwise()])
    gradients = []
    for call in (compiled, function):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(memory_format=ROWS), lambda t: t):
            output = call(x, weight)
        gradients.append(torch.autograd.grad(output.square().sum(), [x, weight]))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dim", [0, 1])
def test_cotangents_that_are_parts_of_one(dim: int) -> None:
    """Their views begin where they do, not where the memory does."""

    def function(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return torch.cat([nn.functional.linear(x, weight) for weight in weights], dim)

    x, *weights = [torch.randn(shape, requires_grad=True) for shape in [(3, 5), (4, 5), (4, 5), (4, 5)]]
    compiled = thunder.jit(function, executors=[Pointwise()])
    cotangent = torch.randn_like(function(x, *weights))
    found, expected = (
        torch.autograd.grad(call(x, *weights), [x, *weights], cotangent) for call in (compiled, function)
    )
    torch.testing.assert_close(found, expected)
    assert DIRECT in lines(compiled, backward=True)
    for trace in thunder.last_backward_traces(compiled):
        made = {line.output.name: line for line in trace.symbols if line.symbol.name == "torch.t"}
        assert all(line.output.offset == line.args[0].offset for line in made.values()), trace
