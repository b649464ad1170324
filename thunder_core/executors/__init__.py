"""Executors, which run the ops of a trace. This module exports the interface for authors of executors.

Executors are offered ops in the order of the configuration (`thunder_core.passes.assign_executors`). Each returns
`Claimed`, or `Declined` with a reason. `configured` declines what the configuration excludes. The reference executor
(`reference`) ends every list: it claims each op, and calls the PyTorch function that the symbol represents. An executor
whose checker raises declines with a warning; with ``THUNDER_STRICT=1`` this is an error.

- `operator_executor`: single operations, by a list of claims.
- `executor`: the base class. ``partition`` selects fusion regions and ``compile_regions`` compiles them; ``derivative``
  differentiates a claimed op by a pair of functions. Only executors with ``varying_sizes`` are offered sizes that vary.
- `states`: an object with state for each op. A `ReplayableState` changes on the device only, so CUDA graphs can contain
  it.
- `artifacts`, `disk_tables`: results on disk. An artifact may be code; tables of results for ops are JSON.
"""

from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import CompiledRegions, DerivativePair, Executor, RegionCounts
from thunder_core.executors.operator_executor import Claim, OperatorExecutor
from thunder_core.executors.states import ReplayableState

__all__ = [
    "Claim",
    "Claimed",
    "CompiledRegions",
    "Decision",
    "Declined",
    "DerivativePair",
    "Executor",
    "OperatorExecutor",
    "RegionCounts",
    "ReplayableState",
]
