"""Executors: who runs the lines of a trace. What authors of executors import is here."""

from thunder_core.executors.claim import Claim
from thunder_core.executors.compiled_regions import CompiledRegions, RegionCounts
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.derivative_pair import DerivativePair
from thunder_core.executors.executor import Executor
from thunder_core.executors.operator_executor import OperatorExecutor
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
