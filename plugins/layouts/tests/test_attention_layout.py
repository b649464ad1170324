"""Attention gets the layout in which its result need not be copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_layouts.attention_layout import AttentionLayout


def like_the_query(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Stands for a kernel that lays out its result as the query: no kernel of the CPU does."""
    return query * (key * value).amax()


ATTENTION = Symbol("attention", like_the_query, tags=frozenset({Tag.ATTENTION, Tag.LOCAL}))


def run(program: Any, *args: torch.Tensor) -> tuple[Any, Any]:
    """The trace with subtractions as attention, before and after."""
    acquired = front_end.record(program, args, {})
    lines = [
        replace(bound, symbol=ATTENTION, args=(bound.args[0], bound.args[1], bound.args[1]), kwargs={})
        if bound.symbol.name == "torch.sub"
        else bound
        for bound in acquired.trace.symbols
    ]
    before = acquired.trace.with_symbols(lines, "attention")
    after = AttentionLayout().run(before, TransformContext(Phase.INFERENCE))
    verify(after)
    for got, expected in zip(
        compile_trace(after)(*acquired.inputs), compile_trace(before)(*acquired.inputs), strict=True
    ):
        assert got.stride() == expected.stride()
        assert torch.equal(got, expected)
    return before, after


def merged(value: torch.Tensor) -> torch.Tensor:
    """Heads next to each other, as the projection after attention takes them."""
    return value.transpose(1, 2).reshape(2, 5, 12)


def copies(trace: Any) -> list[str]:
    """The operations that move elements to fresh memory."""
    return [
        bound.symbol.name
        for bound in trace.symbols
        if bound.symbol.tags & {Tag.SHAPE, Tag.COPY} and not bound.is_view()
    ]


QUERY, KEY = torch.randn(2, 2, 3, 5, 4)


@pytest.mark.parametrize("reader", [merged, lambda y: y.permute(0, 2, 1, 3).contiguous().view(2, 5, 12)])
def test_the_copy_moves_to_the_arguments(reader: Any) -> None:
    before, after = run(lambda q, k: reader(torch.sub(q.cos(), k.sin())), QUERY, KEY)
    assert len(copies(before)) == 1
    assert copies(after) == ["contiguous"] * 3  # executors that fuse have the lines before write so
    *_, last = after.symbols
    assert last.is_view()


def test_arguments_that_are_neighbours_already_stay() -> None:
    def program(q: torch.Tensor, k: torch.Tensor) -> Any:
        return merged(torch.sub(q.cos(), k.transpose(1, 2)))

    _, after = run(program, QUERY, torch.randn(2, 5, 3, 4))
    assert len(copies(after)) == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda q, k: merged(torch.sub(q, k)),  # the user's own tensors
        lambda q, k: merged(torch.sub(q @ q.mT @ q, k)),  # a product writes what it writes
        lambda q, k: (y := torch.sub(q.cos(), k), merged(y)),  # returned: its strides are seen
        lambda q, k: torch.sub(q.cos(), k).flatten(2),  # a view already
        lambda q, k: merged(torch.sub(q.cos(), k)) + torch.sub(q.cos(), k).sum(),  # two calls, of which one is copied
    ],
)
def test_where_it_does_not_help(program: Any) -> None:
    before, after = run(program, QUERY, KEY)
    moved = "contiguous" in copies(after)
    assert moved is (len([b for b in before.symbols if b.symbol is ATTENTION]) == 2)


def test_programs_without_attention_are_left_alone() -> None:
    trace = front_end.record(lambda x: x.cos(), (QUERY,), {}).trace
    assert AttentionLayout().run(trace, TransformContext(Phase.INFERENCE)) is trace
