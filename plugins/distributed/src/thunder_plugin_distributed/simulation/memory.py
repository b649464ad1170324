"""The memory of a training step, by the lifetimes of the values that ops define."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thunder_core.ir.bound_symbol import tensor_inputs_of
from thunder_core.ir.effects import WAITS
from thunder_core.ir.lifetimes import Communication, moments
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Phase
from thunder_plugin_distributed.program_collectives import issues_of
from thunder_plugin_distributed.recording.operations import RECEIVE


@dataclass(frozen=True)
class Peak:
    """The peak memory of programs, without their inputs.

    Attributes:
        bytes: of all values that are alive at the peak.
        phase: the program that reaches the peak.
        location: the user's line of the peak; None if it is unknown.
    """

    bytes: int
    phase: str
    location: SourceLocation | None


def peak_of(programs: Mapping[Phase, Trace]) -> Peak:
    """The peak of programs that run one after the other, as `thunder_core.ir.lifetimes.moments`.

    Tensors that a collective reads are alive until it is waited for, as in PyTorch.
    """
    found = Peak(0, "", None)
    for moment in moments({phase.value: trace for phase, trace in programs.items()}, communication_of):
        if moment.bytes > found.bytes:
            found = Peak(moment.bytes, moment.program, None if moment.op is None else moment.op.location)
    return found


def communication_of(trace: Trace, derivatives: Mapping[str, Trace]) -> Communication:
    """How the collectives of a program change lifetimes.

    What a collective reads is in use until the op that waits for it, whose result is in the buffer of the collective.

    Args:
        derivatives: backward programs of graphs that autograd recorded, by their names.
    """
    late: dict[str, int] = {}
    for issue in issues_of(trace, derivatives):
        if issue.wait is not None and not issue.inside:
            late |= {proxy.name: issue.wait for proxy in trace.symbols[issue.index].inputs()}
    same: dict[str, str] = {}
    for op in trace.symbols:
        if op.effects.channels == (WAITS,) and op.symbol is not RECEIVE and (tensors := tensor_inputs_of(op)):
            same |= {proxy.name: tensors[0].name for proxy in op.outputs() if isinstance(proxy, TensorProxy)}
    return Communication(late, same)
