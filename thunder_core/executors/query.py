"""Query executors, in order of preference, for their decisions about an op."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from thunder_core.errors import SizeVariesError
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import only_kernels
from thunder_core.ir.proxy import TensorProxy
from thunder_core.tracing.sizes import active_environment


def query_executors(executors: Iterable[Executor], bound: BoundSymbol) -> tuple[Decision, ...]:
    """The decisions about ``bound`` up to the first claim, or of all executors if none claims it.

    Raises:
        ExecutorError: an executor configured with ``on_decline="error"`` declined.
    """
    with only_kernels(None if bound.context is None else bound.context.attention):
        return tuple(_decisions(executors, bound))


def _decisions(executors: Iterable[Executor], bound: BoundSymbol) -> Iterator[Decision]:
    varies = active_environment() is not None and bound.varies()
    for executor in executors:
        takes = executor.varying_sizes or not varies
        decision = _claim(executor, bound) if takes else Declined(executor.name, "its sizes vary between calls")
        if executor.fuses and isinstance(decision, Claimed):
            reason = _unfusible(bound)
            decision = decision if reason is None else Declined(executor.name, reason)
        yield decision
        if isinstance(decision, Claimed):
            return
        if isinstance(executor, ConfiguredExecutor):
            executor.report(bound, decision)


def _claim(executor: Executor, bound: BoundSymbol) -> Decision:
    """The executor's decision; a decline if it depends on the value of a varying size."""
    try:
        return executor.claim(bound)
    except SizeVariesError as error:
        return Declined(executor.name, str(error))


def _unfusible(bound: BoundSymbol) -> str | None:
    """The reason why no region may contain the op, whatever an executor claims; None if regions may contain it."""
    if bound.effects.irremovable:
        return "it has effects"
    for proxy in bound.proxies():
        if not isinstance(proxy, TensorProxy):
            return f"it works on {proxy.name}, which is not a tensor"
    return None
