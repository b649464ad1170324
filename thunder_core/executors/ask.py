"""Ask executors, one after the other, who runs a line."""

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


def ask(executors: Iterable[Executor], bound: BoundSymbol) -> tuple[Decision, ...]:
    """The decisions up to the first claim, or of all.

    Raises:
        ExecutorError: one declined whose configuration forbids that.
    """
    with only_kernels(None if bound.context is None else bound.context.attention):
        return tuple(_answers(executors, bound))


def _answers(executors: Iterable[Executor], bound: BoundSymbol) -> Iterator[Decision]:
    varies = active_environment() is not None and bound.varies()
    for executor in executors:
        takes = executor.varying_sizes or not varies
        answer = _claim(executor, bound) if takes else Declined(executor.name, "its sizes vary between calls")
        if executor.fuses and isinstance(answer, Claimed):
            reason = unfusible(bound)
            answer = answer if reason is None else Declined(executor.name, reason)
        yield answer
        if isinstance(answer, Claimed):
            return
        if isinstance(executor, ConfiguredExecutor):
            executor.report(bound, answer)


def _claim(executor: Executor, bound: BoundSymbol) -> Decision:
    """The executor's decision; one that needs the value of a size that varies is a decline."""
    try:
        return executor.claim(bound)
    except SizeVariesError as error:
        return Declined(executor.name, str(error))


def unfusible(bound: BoundSymbol) -> str | None:
    """Why no region may hold the line, whatever an executor claims; None if one may."""
    if bound.effects.kept:
        return "it has effects"
    for proxy in (*bound.inputs(), *bound.outputs()):
        if not isinstance(proxy, TensorProxy):
            return f"it works on {proxy.name}, which is no tensor"
    return None
