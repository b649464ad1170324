"""Minimum cuts of directed graphs."""

from __future__ import annotations

import hashlib
from array import array
from typing import Any, Final

from thunder_core.executors.disk_tables import disk_table

SOURCE: Final = 0
SINK: Final = 1
UNBOUNDED: Final = -1
"""The capacity of an edge that may not be cut."""

# SciPy computes with 32-bit integers. An unbounded edge gets this capacity, and all others together no more than it, so
# that no sum of two overflows.
_LARGEST: Final = 1 << 29
_TITLE: Final = "minimum cuts 1"
"""Of what is kept on disk: to be changed with what equal edges are cut into."""


class Cut:
    """A graph under construction; `sink_side` cuts it.

    A cut puts each node on the side of the source or on that of the sink. It pays for the edges that lead from the
    former to the latter.
    """

    def __init__(self) -> None:
        self._nodes = 2
        self._edges: dict[tuple[int, int], int] = {}

    def node(self) -> int:
        """A new node."""
        self._nodes += 1
        return self._nodes - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge, at most one for each pair of nodes unless they are unbounded. Zero capacity is no edge."""
        if capacity:
            self._edges[tail, head] = capacity

    def sink_side(self) -> frozenset[int]:
        """The nodes on the sink's side in a cheapest cut: of several, in the one with the fewest nodes there.

        Capacities are rounded up to a unit that is one unless their sum exceeds 2**28, and less than 2**-27 of it then.
        A cut without unbounded edges must exist.
        """
        if not any(head == SINK for _, head in self._edges):
            return frozenset()
        import numpy

        table, question = disk_table(_TITLE), self._question()
        known = None if table is None else table.get(question)
        if known is None:
            side = numpy.zeros(self._nodes, dtype=bool)
            side[self._reaching()] = True
            known = numpy.packbits(side).tobytes()
            if table is not None:
                table.put(question, known)
        return frozenset(numpy.unpackbits(numpy.frombuffer(known, numpy.uint8)).nonzero()[0].tolist())

    def _question(self) -> str:
        edges = array("q", [number for edge, capacity in self._edges.items() for number in (*edge, capacity)])
        return f"{self._nodes} {hashlib.sha256(edges).hexdigest()}"

    def _reaching(self) -> list[int]:
        """The nodes of the answer."""
        # SciPy takes a quarter of a second to import, which processes do without that cut what others have cut
        import numpy
        from scipy.sparse import csr_array  # type: ignore[import-untyped]
        from scipy.sparse.csgraph import (  # type: ignore[import-untyped]
            breadth_first_order,
            maximum_flow,
        )

        ends = numpy.array(list(self._edges), dtype=numpy.int32).T
        wanted = numpy.array(list(self._edges.values()), dtype=numpy.int64)
        capacities = _scaled(wanted)
        shape = (self._nodes, self._nodes)
        graph = csr_array((capacities, (ends[0], ends[1])), shape=shape)
        graph.indices, graph.indptr = graph.indices.astype(numpy.int32), graph.indptr.astype(numpy.int32)
        residual = graph - maximum_flow(graph, SOURCE, SINK).flow
        residual.eliminate_zeros()
        reaching: list[int] = breadth_first_order(residual.T.tocsr(), SINK, return_predecessors=False).tolist()
        return reaching


def _scaled(capacities: Any) -> Any:
    """An integer array of capacities as 32-bit integers whose sum does not overflow."""
    import numpy

    bounded = capacities != UNBOUNDED
    # each is rounded up, so half of the range is kept free for that
    unit = max(1, -(-int(capacities[bounded].sum()) // (_LARGEST // 2)))
    return numpy.where(bounded, -(-capacities // unit), _LARGEST).astype(numpy.int32)
