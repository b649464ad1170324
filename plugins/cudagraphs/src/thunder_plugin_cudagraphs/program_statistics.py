"""Statistics of the programs that a transform captures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder_core.runtime.compiled import Compiled
from thunder_core.runtime.module import ThunderModule
from thunder_core.runtime.module_forward import compiled_of


@dataclass(frozen=True, slots=True)
class ProgramStatistics:
    """Statistics of one program.

    Attributes:
        name: of the program.
        phase: "inference", "forward" or "backward".
        graphs: the number of its graphs now.
        captures: the number of captures.
        replays: the number of replays, the first one after each capture included.
        ungraphed: the number of calls without a graph, by reason.
        refused: the reason for which it is not captured any more; None while it may be.
        pool_bytes: memory of all graphs of the device together; 0 if there are none.
        decision: the times for which `when: auto` decided to capture it; None before, and with `always`.
    """

    name: str
    phase: str
    graphs: int = 0
    captures: int = 0
    replays: int = 0
    ungraphed: tuple[tuple[str, int], ...] = ()
    refused: str | None = None
    pool_bytes: int = 0
    decision: str | None = None

    def __str__(self) -> str:
        lines = [f"cudagraphs, {self.phase}: {self.graphs} graphs, {self.replays} replays"]
        if self.decision is not None:
            lines.append(f"  captured, since {self.decision}")
        if self.refused is not None and not self.graphs:
            lines = [f"cudagraphs, {self.phase}: no graph, since {self.refused}"]
        elif self.refused is not None:
            lines.append(f"  no more graphs, since {self.refused}")
        lines.extend(f"  {count} calls without a graph: {reason}" for reason, count in self.ungraphed)
        return "\n".join(lines)


def statistics(jitted: Any) -> tuple[ProgramStatistics, ...]:
    """The statistics of the inference, forward and backward programs of a compiled function or module, oldest first.

    Args:
        jitted: the result of `thunder.jit`.

    Raises:
        TypeError: ``jitted`` is not a result of `thunder.jit`.
    """
    from thunder_plugin_cudagraphs.program import GraphedProgram

    compiled = compiled_of(jitted) if isinstance(jitted, ThunderModule) else jitted
    if not isinstance(compiled, Compiled):
        raise TypeError(f"{type(jitted).__name__} is not a result of thunder.jit")
    entries = compiled.entries or ([] if compiled.last is None else [compiled.last])
    notes = [note for entry in entries for note in entry.program.notes]
    results = [note.statistics if isinstance(note, GraphedProgram) else note for note in notes]
    return tuple([one for one in results if isinstance(one, ProgramStatistics)])
