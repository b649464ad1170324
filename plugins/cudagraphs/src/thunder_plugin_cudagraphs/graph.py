"""One captured graph of a program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thunder_plugin_cudagraphs.backend import Backend, Layout
from thunder_plugin_cudagraphs.buffers import Buffers
from thunder_plugin_cudagraphs.memory import Footprint, Group, Held, Pool
from thunder_plugin_cudagraphs.outputs import Outputs

if TYPE_CHECKING:
    from thunder_plugin_cudagraphs.program import GraphedProgram


@dataclass(slots=True)
class SavedMemory:
    """A block of the memory pool of forward that holds inputs of backward.

    Attributes:
        pool, start, end, group: of the block.
        members: positions of the inputs, and their offsets in the block.
    """

    pool: Pool
    start: int
    end: int
    group: Group
    members: list[tuple[int, Layout]] = field(default_factory=list)

    def restore(self, values: list[Any], backend: Backend) -> None:
        """Put views of the block at the positions of the inputs: its contents are valid until the next replay."""
        storage = backend.storage(self.start, self.end - self.start)
        for position, layout in self.members:
            values[position] = backend.tensor(storage, layout)
        self.pool.add(Held(storage, self.start, self.end, self.group, False))


@dataclass(frozen=True, slots=True)
class Bound:
    """How the inputs of a call are passed to a graph.

    Attributes:
        key: see `Inputs.key`.
        fixed, addresses: positions of tensors that the graph reads in place, and the address at each.
        buffers: static buffers into which the other tensors are copied.
        saved: blocks of the memory pool of forward.
        constants: inputs that the graph reads, which must live as long as the graph.
    """

    key: tuple[Any, ...]
    fixed: list[int]
    addresses: list[int | None]
    buffers: Buffers
    saved: list[SavedMemory]
    constants: Sequence[Any]


class Graph:
    """A captured graph and the state that a replay needs. Hold the lock of its device while using it.

    Attributes:
        bound: its inputs.
        pool: the memory pool of its results.
        outputs: how the results are returned.
        footprint: the memory that a replay may write.
        last_used: the time of the last replay, by the counter of its device.
    """

    __slots__ = (
        "__weakref__", "_program", "_saved_positions", "bound", "footprint", "last_used", "outputs", "pool", "replay",
    )  # fmt: skip

    def __init__(
        self,
        program: GraphedProgram,
        bound: Bound,
        pool: Pool,
        outputs: Outputs,
        footprint: Footprint,
        replay: Callable[[], None],
    ) -> None:
        self._program = weakref.ref(program)
        self._saved_positions = [position for memory in bound.saved for position, _ in memory.members]
        self.bound = bound
        self.pool = pool
        self.outputs = outputs
        self.footprint = footprint
        self.replay = replay
        self.last_used = 0

    def take(self, values: list[Any]) -> list[Any]:
        """Copy inputs to the static buffers and release those saved by the graph of forward; returns the other inputs.

        ``values`` is emptied if there are saved ones.
        """
        originals = values
        if self._saved_positions:
            originals = values.copy()
            for position in self._saved_positions:
                originals[position] = None
            values.clear()
        self.bound.buffers.fill(originals)
        return originals

    def give_back(self, values: list[Any], originals: list[Any], backend: Backend) -> None:
        """Undo `take`."""
        if originals is not values:
            values.extend(originals)
            for memory in self.bound.saved:
                memory.restore(values, backend)

    def forget(self) -> None:
        """Remove the graph from its program."""
        program = self._program()
        if program is not None and self in program.graphs:
            program.graphs.remove(self)
