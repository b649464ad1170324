"""Executors, which run the ops of a trace. This module exports the interface for authors of executors."""

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
