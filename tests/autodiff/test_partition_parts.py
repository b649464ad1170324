"""The parts of the partition: memory, cuts, the work of lines."""

from __future__ import annotations

import pytest
import torch

from tests.autodiff.joint_builder import JointBuilder, function, operator
from thunder_core.autodiff.partitioning.cut import SINK, SOURCE, UNBOUNDED, Cut
from thunder_core.autodiff.partitioning.recompute import cost
from thunder_core.autodiff.partitioning.work import Work, work_of
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.storage_sizes import bytes_of, element_bytes, extent_bytes, storage_bytes
from thunder_testing.forked import run_forked
from thunder_testing.hand_built import tensor

ATEN = torch.ops.aten


@pytest.mark.parametrize(
    ("shape", "fields", "extent", "elements"),
    [
        ((2, 3), {}, 24, 24),
        ((2, 3), {"offset": 2}, 32, 24),
        ((2, 3), {"stride": (6, 2)}, 44, 24),
        ((5, 3), {"stride": (0, 1)}, 12, 12),
        ((), {"dtype": torch.float64}, 8, 8),
        ((0, 3), {"offset": 7}, 0, 0),
        ((2, 3), {"stride": (), "layout": torch.sparse_coo}, 24, 24),
    ],
)
def test_bytes_of_a_tensor(shape, fields, extent, elements):
    proxy = tensor("a", shape, 0, **fields)
    assert extent_bytes(proxy) == extent
    assert element_bytes(proxy) == elements


def test_bytes_of_shared_memory():
    whole, part, other = tensor("whole", (8,), 0), tensor("part", (2,), 0, offset=4), tensor("other", (3,), 1)
    number = NumberProxy("n", int)
    assert storage_bytes([part, whole, other, number]) == {0: 32, 1: 12}
    assert bytes_of([part, other, number]) == 24 + 12
    assert bytes_of([part, other], {0: 32}) == 32 + 12
    assert bytes_of([part, whole, other], without={1}) == 32


def path(*capacities: int) -> frozenset[int]:
    """Positions of the nodes on the sink's side in a path of edges with these capacities."""
    cut = Cut()
    nodes = [SOURCE, *(cut.node() for _ in capacities[1:]), SINK]
    for tail, head, capacity in zip(nodes, nodes[1:], capacities):
        cut.edge(tail, head, capacity)
    side = cut.sink_side()
    return frozenset(place for place, node in enumerate(nodes) if node in side)


def test_cheapest_edge_is_cut():
    assert path(3, 2, 5) == {2, 3}
    assert path(UNBOUNDED, 7, UNBOUNDED) == {2, 3}


def test_of_equal_cuts_the_one_nearest_to_the_sink():
    assert path(2, 2, 2) == {3}


def test_capacities_beyond_32_bits():
    assert path(2 << 40, 1 << 40, UNBOUNDED, 3 << 40) == {2, 3, 4}
    assert path(1 << 40, 1, UNBOUNDED) == {2, 3}


def test_nothing_leads_to_the_sink():
    cut = Cut()
    cut.edge(SOURCE, cut.node(), 5)
    assert cut.sink_side() == frozenset()


X = object()
"""Stands for the input."""


@pytest.mark.parametrize(
    ("symbol", "arguments", "work"),
    [
        (function("torch.sin"), (X,), Work.ELEMENTWISE),
        (function("torch.clone"), (X,), Work.ELEMENTWISE),
        (function("torch.transpose"), (X, 0, 1), Work.VIEW),
        (function("torch.softmax"), (X, -1), Work.PASS),
        (function("torch.sum"), (X,), Work.PASS),
        (function("torch.matmul"), (X, X), Work.CONTRACTION),
        (function("torch.linalg.inv"), (X,), Work.CONTRACTION),
        (operator(ATEN.relu.default), (X,), Work.ELEMENTWISE),
        (operator(ATEN._to_copy.default), (X,), Work.ELEMENTWISE),
        (operator(ATEN.t.default), (X,), Work.VIEW),
        (operator(ATEN._softmax.default), (X, -1, False), Work.PASS),
        (operator(ATEN.mm.default), (X, X), Work.CONTRACTION),
        (operator(ATEN.full.default), ([4], 1.0), Work.ELEMENTWISE),
    ],
)
def test_work(symbol, arguments, work):
    b = JointBuilder()
    x = b.primal("x", 4, 4)
    b.call("y", symbol, *(x if argument is X else argument for argument in arguments))
    assert work_of(b.lines[0]) is work


def test_lines_that_run_once():
    b = JointBuilder()
    x = b.primal("x", 4)
    b.call("y", function("torch.rand_like"), x, effects=Effects(random=True))
    b.call("z", function("torch.equal"), x, x, output=NumberProxy("z", bool))
    assert [work_of(line) for line in b.lines] == [Work.ONCE, Work.ONCE]


def test_operations_of_a_contraction_are_part_of_its_cost():
    b = JointBuilder()
    x, w = b.primal("x", 256, 512), b.primal("w", 512, 1024)
    b.call("y", function("torch.matmul"), x, w)
    work = work_of(b.lines[0])
    moved = cost(b.lines[0], Work.PASS)
    assert cost(b.lines[0], work) - moved == 2 * 256 * 512 * 1024 // 200


@pytest.mark.slow
def test_scipy_is_imported_by_a_cut_only():
    code = "import sys, thunder_core.autodiff.partitioning.partition; sys.exit('scipy' in sys.modules)"
    assert run_forked(code).returncode == 0
