"""What results alone need waits for a region that reads the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import thunder
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.dependencies import dependencies, run_order
from thunder_fusion.regions import find_regions

SQUARES = ((4, 4),) * 4


def regions_of(program: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Trace, dict[int, int]]:
    """The trace, and the region of each line; products of matrices stay alone."""
    compiled = thunder.jit(program, executors=[])
    compiled(*map(torch.ones, shapes))
    trace = thunder.last_traces(compiled)[0]
    labels = [None if Tag.MATMUL in bound.symbol.tags else 0 for bound in trace.symbols]
    order = run_order(dependencies(trace.symbols), find_regions(trace.symbols, labels))
    assert order is not None
    return trace, {index: number for number, group in enumerate(order) for index in group}


def lines(trace: Trace, name: str) -> list[int]:
    """Positions of the calls of an operation."""
    return [index for index, bound in enumerate(trace.symbols) if bound.symbol.name.split(".")[-1] == name]


def gated(gate: Any, up: Any, cotangent: Any, weight: Any) -> Any:
    """Part of the backward of ``(silu(gate) * up) @ weight.t()``."""
    gradient_of_weight = cotangent.t() @ (functional.silu(gate) * up)
    gradient = cotangent @ weight
    return gradient_of_weight, (gradient * up) @ weight, gradient + gate


def test_a_side_joins_the_region_that_reads_the_same():
    trace, region = regions_of(gated, *SQUARES)
    silu, product, other = (lines(trace, name) for name in ("silu", "mul", "add"))
    assert len({region[index] for index in (*silu, *product, *other)}) == 1


def test_also_where_its_result_is_converted_once_more():
    def converted(*args: Any) -> Any:
        first, *others = gated(*args)
        return first.double(), *others

    trace, region = regions_of(converted, *SQUARES)
    assert len({region[index] for index in (*lines(trace, "silu"), *lines(trace, "mul"))}) == 1


def test_a_side_that_shares_little_does_not_wait():
    def program(large: Any, small: Any, cotangent: Any) -> Any:
        gradient = cotangent @ cotangent
        return cotangent.t() @ (large.exp() * small), gradient * small

    trace, region = regions_of(program, (4, 400), (4, 1), (4, 4))
    assert region[lines(trace, "exp")[0]] < region[lines(trace, "mul")[1]]


def test_what_others_wait_for_does_not_wait():
    def program(gate: Any, up: Any, weight: Any) -> Any:
        hidden = (functional.silu(gate) * up) @ weight
        return ((hidden @ weight) * gate * up) @ weight @ weight

    trace, region = regions_of(program, *SQUARES[:3])
    first, *_, last = lines(trace, "mul")
    assert region[first] < region[lines(trace, "matmul")[0]] < region[last]
