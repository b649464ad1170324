"""How long programs compute and communicate, by a deterministic cost model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from thunder.simulation.hardware import Hardware
from thunder_core.acquire.wrapper_line import programs_of
from thunder_core.autodiff.memory import element_bytes
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.passes.base import Phase
from thunder_core.runtime.collectives import Issue, derivatives_of, issues_of_programs
from thunder_core.runtime.decisions import count_operations


@dataclass(frozen=True)
class Times:
    """Seconds of one step.

    Attributes:
        compute: of the lines that compute.
        communication: of the collectives, one after the other.
        exposed: that the program waits for collectives.
    """

    compute: float
    communication: float
    exposed: float

    @property
    def step(self) -> float:
        """Until the last line, and the last collective, are done."""
        return self.compute + self.exposed


def times_of(programs: Mapping[Phase, Trace], groups: Mapping[str, tuple[int, ...]], hardware: Hardware) -> Times:
    """The times of programs that run one after the other.

    Lines compute one after the other. The collectives of a process group run one after the other, beside the lines and
    beside those of other groups, from the line that starts them on; the program goes on at the line that waits for them
    when they are done. What nobody waits for is waited for at once.
    """
    compute = exposed = communication = now = 0.0
    free = dict.fromkeys(groups, 0.0)
    started: dict[Phase, list[Issue]] = {}
    for phase, issue in issues_of_programs(programs):
        started.setdefault(phase, []).append(issue)
    derivatives: dict[str, Trace] = {}
    for phase, trace in programs.items():
        issues: dict[int, list[Issue]] = {}
        for issue in started.get(phase, ()):
            issues.setdefault(issue.index, []).append(issue)
        ends: dict[int, float] = {}
        for index, line in enumerate(trace.symbols):
            if index in ends:
                late = max(0.0, ends.pop(index) - now)
                exposed, now = exposed + late, now + late
            seconds = sum(_seconds(each, hardware) for each in _run_by(line, derivatives))
            compute, now = compute + seconds, now + seconds
            for issue in issues.get(index, ()):
                for each in issue.collectives:
                    took = hardware.communication_seconds(each.sent(len(groups[each.group])), groups[each.group])
                    communication += took
                    end = max(now, free[each.group]) + took
                    free[each.group] = end
                    if issue.wait is None or issue.inside:
                        exposed, now = exposed + end - now, end
                    else:
                        ends[issue.wait] = max(ends.get(issue.wait, 0.0), end)
        derivatives |= derivatives_of(trace)
        late = max([0.0, *[end - now for end in ends.values()]])
        exposed, now = exposed + late, now + late
    return Times(compute, communication, exposed)


def _run_by(line: BoundSymbol, derivatives: Mapping[str, Trace]) -> Iterator[BoundSymbol]:
    """The lines that compute when a line runs: those of its programs, or itself."""
    bodies = [*programs_of(line.symbol)[:1], *bodies_of(line)]
    bodies += [derivatives[proxy.name] for proxy in line.inputs() if proxy.name in derivatives]
    for body in bodies:
        for inner in body.symbols:
            yield from _run_by(inner, {})
    if not bodies and (line.effects.external or not line.effects.channels):
        yield line


def _seconds(line: BoundSymbol, hardware: Hardware) -> float:
    if line.is_view():
        return 0.0
    tensors = {proxy.name: proxy for proxy in (*tensor_inputs_of(line), *tensor_outputs_of(line))}
    moved = sum(map(element_bytes, tensors.values()))
    dtype = next((proxy.dtype for proxy in tensors.values()), torch.float32)
    return hardware.compute_seconds(count_operations(line) or 0, moved, dtype)
