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
"""The key of the table on disk, to be changed if equal edges get another cut."""


class Cut:
    """A graph under construction; `sink_side` computes a minimum cut of it.

    A cut assigns each node to the source's side or to the sink's side. Its cost is the total capacity of the edges from
    the former to the latter.
    """

    def __init__(self) -> None:
        self._nodes = 2
        self._edges: dict[tuple[int, int], int] = {}

    def node(self) -> int:
        """A new node."""
        self._nodes += 1
        return self._nodes - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge, at most one for each pair of nodes unless they are unbounded. Zero capacity is not an edge."""
        if capacity:
            self._edges[tail, head] = capacity

    def sink_side(self) -> frozenset[int]:
        """The nodes on the sink's side of a minimum cut; of several, of the one with the fewest nodes on that side.

        Capacities are rounded up to a unit that is one unless their sum exceeds 2**28, and less than 2**-27 of it then.
        A cut without unbounded edges must exist.
        """
        if not any(head == SINK for _, head in self._edges):
            return frozenset()
        import numpy

        table, key = disk_table(_TITLE), self._key()
        known = None if table is None else table.get(key)
        if known is None or len(known) != (self._nodes + 7) // 8:
            side = numpy.zeros(self._nodes, dtype=bool)
            side[self._reaching()] = True
            known = numpy.packbits(side).tobytes()
            if table is not None:
                table.put(key, known)
        return frozenset(numpy.unpackbits(numpy.frombuffer(known, numpy.uint8)).nonzero()[0].tolist())

    def _key(self) -> str:
        edges = array("q", [number for edge, capacity in self._edges.items() for number in (*edge, capacity)])
        return f"{self._nodes} {hashlib.sha256(edges).hexdigest()}"

    def _reaching(self) -> list[int]:
        """The nodes from which the sink is reachable in the residual graph of a maximum flow."""
        # imported here because it takes a quarter of a second; processes that read the cut from disk do not need it
        import numpy
        from scipy.sparse import csr_array  # type: ignore[import-untyped]
        from scipy.sparse.csgraph import (  # type: ignore[import-untyped]
            breadth_first_order,
            maximum_flow,
        )

        ends = numpy.array(list(self._edges), dtype=numpy.int32).T
        capacities = numpy.array(list(self._edges.values()), dtype=numpy.int64)
        capacities = _scaled(capacities)
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
