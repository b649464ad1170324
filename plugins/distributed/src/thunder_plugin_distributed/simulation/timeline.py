"""How long programs compute and communicate, by a deterministic cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thunder_core.ir.trace import Trace, derivatives_of
from thunder_core.passes.base import Phase
from thunder_plugin_distributed.compute_time import compute_seconds
from thunder_plugin_distributed.hardware import Hardware
from thunder_plugin_distributed.program_collectives import Issue, issues_of_programs


@dataclass(frozen=True)
class Times:
    """Seconds of one step.

    Attributes:
        compute: of all ops that compute, and of the copies that collectives make.
        communication: of the collectives, one after the other.
        exposed: that the program waits for collectives.
        optimizer: of the step of the optimizer.
    """

    compute: float
    communication: float
    exposed: float
    optimizer: float = 0.0

    @property
    def step(self) -> float:
        """Until the optimizer is done, which starts after the last op and the last collective."""
        return self.compute + self.exposed + self.optimizer


def times_of(programs: Mapping[Phase, Trace], groups: Mapping[str, tuple[int, ...]], hardware: Hardware) -> Times:
    """The times of programs that run one after the other.

    Ops compute one after the other. The collectives of a process group run one after the other, in parallel with the
    ops and with the collectives of other groups. An op that waits for a collective starts when the collective has
    ended. A collective without such an op is waited for at once.
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
        for index, op in enumerate(trace.symbols):
            if index in ends:
                late = max(0.0, ends.pop(index) - now)
                exposed, now = exposed + late, now + late
            seconds = compute_seconds(op, hardware, derivatives)
            compute, now = compute + seconds, now + seconds
            for issue in issues.get(index, ()):
                for each in issue.collectives:
                    ranks = groups[each.group]
                    took = hardware.communication_seconds(each.sent(len(ranks)), ranks)
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
