"""Inputs in one memory, one of which is written: programs are used again only for inputs that share it likewise."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning
from thunder_core.ir.tree import iterate_leaves

# PyTorch says once in a process that it checks no invariants of sparse tensors.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")

Inputs = tuple[torch.Tensor, torch.Tensor]


def program(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a.mul_(w)
    return b * 3


def views() -> Inputs:
    whole = torch.ones(6)
    return whole[:], whole[2:]


def detached() -> Inputs:
    whole = torch.ones(6)
    return whole.detach(), whole[2:].detach()


def elsewhere() -> Inputs:
    whole = torch.arange(8.0)
    return whole[:6], whole[2:6]


def apart() -> Inputs:
    return torch.ones(6), torch.ones(4)


def moved() -> Inputs:
    whole = torch.arange(6.0)
    return whole[:], whole[:4]


def result(function: Callable[..., Any], make: Callable[[], Inputs]) -> Any:
    w = torch.tensor(2.0, requires_grad=True)
    a, b = make()
    y = function(a, b, w)
    if y.requires_grad:
        y.sum().backward()
    return y.tolist(), y.requires_grad, a.requires_grad, b.requires_grad, a.tolist(), w.grad


MAKERS = (views, detached, elsewhere, apart, moved)


@pytest.mark.parametrize(
    "pair", list(itertools.permutations(MAKERS, 2)), ids=lambda pair: " ".join(m.__name__ for m in pair)
)
@pytest.mark.battery
def test_program_that_was_made_for_other_inputs(pair: tuple[Callable[[], Inputs], ...]) -> None:
    compiled = thunder.jit(program)
    for make in pair:
        for _ in range(2):
            assert result(compiled, make) == result(program, make)


def test_same_sharing_is_served_by_one_entry() -> None:
    compiled = thunder.jit(program)
    for _ in range(3):
        result(compiled, views)
    assert thunder.cache_misses(compiled) == 1


def test_reason_names_the_inputs() -> None:
    compiled = thunder.jit(program)
    result(compiled, views)
    result(compiled, detached)
    assert "a: shares memory with b in a different way" in thunder.explain(compiled).entries[-1].reason


def test_inputs_that_overlap_partly_are_read() -> None:
    def reads(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> Any:
        return a * x + b, a, b[1:]

    compiled = thunder.jit(reads)
    for _ in range(2):
        whole, x = torch.randn(6), torch.randn(4, requires_grad=True)
        expected, found = (function(whole[:4], whole[2:], x) for function in (reads, compiled))
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(results[0].sum(), x) for results in (expected, found)]
        torch.testing.assert_close(gradients[1], gradients[0])


def test_inputs_that_overlap_partly_are_written_line_by_line() -> None:
    def overlapping() -> Inputs:
        whole = torch.arange(6.0)
        return whole[:4], whole[2:]

    compiled = thunder.jit(program)
    for _ in range(2):
        assert result(compiled, overlapping) == result(program, overlapping)
    (entry,) = thunder.explain(compiled).entries
    assert "overlap in memory, none of them covers the others" in str(entry.as_recorded)


# ---- sparse tensors --------------------------------------------------------------------------------------------------

SPARSE: dict[str, Callable[[], torch.Tensor]] = {
    "coo": lambda: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2)).coalesce(),
    "csr": lambda: torch.eye(2).to_sparse_csr(),
    "csc": lambda: torch.eye(2).to_sparse_csc(),
    "bsr": lambda: torch.eye(2).to_sparse_bsr((1, 1)),
    "bsc": lambda: torch.eye(2).to_sparse_bsc((1, 1)),
}


def writes_then_reads(c: torch.Tensor) -> Any:
    c.values().mul_(3)
    return c.to_dense(), c.values() * 1


def writes_of_a_computed_one(c: torch.Tensor) -> Any:
    d = c * 2
    d.detach().values()[0] = 7
    return d.to_dense()


def reads_sizes(c: torch.Tensor) -> Any:
    return torch.ones(c.values().shape), c.to_dense() * c.values().numel()


def writes_what_it_consists_of(c: torch.Tensor) -> Any:
    values = c.to_dense().diagonal().clone()
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), values, (2, 2))
    values.add_(1)
    return made.to_dense()


def writes_a_constant_that_it_consists_of(c: torch.Tensor) -> Any:
    values = torch.ones(2)
    made = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), values, (2, 2))
    values.add_(1)
    return made.to_dense() + c.to_dense()


@pytest.mark.filterwarnings("ignore:.*sparse tensor", "ignore:Sparse")
@pytest.mark.parametrize(
    "program",
    [writes_then_reads, writes_of_a_computed_one, reads_sizes, writes_what_it_consists_of,
     writes_a_constant_that_it_consists_of],
    ids=lambda program: program.__name__,
)  # fmt: skip
@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.battery
def test_parts_of_sparse_tensors(layout: str, program: Callable[..., Any]) -> None:
    """Writes to them were lost, and the sizes of those of inputs were taken for 0."""
    seen = []
    for function in (program, thunder.jit(program)):
        c = SPARSE[layout]()
        results = [[value.tolist() for value in iterate_leaves(function(c))] for _ in range(3)]
        seen.append((results, c.to_dense().tolist()))
    assert seen[0] == seen[1]


def test_reading_a_part_of_a_sparse_tensor_is_said_once() -> None:
    compiled = thunder.jit(writes_then_reads)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(4):
            compiled(SPARSE["coo"]())
    said = [one for one in said if one.category is UncacheableWarning]
    assert len(said) == 1
    assert "values returns a part of a sparse tensor at " in str(said[0].message)


def test_programs_with_sparse_tensors_compile() -> None:
    """As long as they do not take them apart."""
    compiled = thunder.jit(lambda c, x: torch.sparse.mm(c, x).add_(1) + c.to_dense().add_(1))
    c, x = SPARSE["coo"](), torch.ones(2, 2)
    for _ in range(2):
        assert torch.equal(compiled(c, x), torch.sparse.mm(c, x) + 1 + c.to_dense() + 1)
    assert thunder.cache_hits(compiled) == 1
