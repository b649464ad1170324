"""The process groups that programs communicate in."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from thunder_core.ir.trace import Trace, derivatives_of
from thunder_core.passes.base import Phase
from thunder_core.pytorch_internals import process_group_named


def groups_of(programs: Mapping[Phase, Trace]) -> dict[str, tuple[int, ...]]:
    """The ranks of the process groups that programs communicate in, by name."""
    traces = [*programs.values(), *[body for trace in programs.values() for body in derivatives_of(trace).values()]]
    names = {group for trace in traces for op in trace.symbols for group in op.effects.groups}
    return {name: ranks_of(name) for name in sorted(names)}


def ranks_of(group: str) -> tuple[int, ...]:
    """The ranks of a process group, in its order."""
    return tuple(torch.distributed.get_process_group_ranks(process_group_named(group)))
