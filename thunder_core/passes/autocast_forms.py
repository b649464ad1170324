"""How each line is written so that it does not depend on autocast."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import Context
from thunder_core.ir.definitions import producers_of
from thunder_core.ir.keys import call_key
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.autocast_comparison import same_operations
from thunder_core.passes.autocast_log import CallLog, log_call
from thunder_core.passes.autocast_policies import Rewrite, candidate_rewrites, rewrite_by_class
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize import without_writes

_cache: Final = BoundedCache["Form"](1024)


Form = Rewrite | Trace | None
"""A trace has the operators that a line consists of, for `Builder.inline`. None: the line stays under autocast."""


def explicit_form(bound: BoundSymbol, context: Context) -> Form:
    """What to write for a line under ``context``. Lines with equal symbols and metadata are looked at once."""
    return _cache.get(call_key(bound, context), lambda: _decide(bound, context))


def _decide(bound: BoundSymbol, context: Context) -> Form:
    try:
        wanted = log_call(bound, context)
    except LoweringError:
        return rewrite_by_class(bound, context)
    if _converts_inside(bound, wanted):
        return None
    plain = replace(context, autocast=())
    for rewrite in candidate_rewrites(bound, context):
        if _does(bound, plain, rewrite, wanted):
            return rewrite if _converts_inputs(bound, rewrite, wanted) else replace(rewrite, cached=False)
    try:
        return _parts(plain, wanted)
    except LoweringError:
        return None


def _converts_inside(bound: BoundSymbol, log: CallLog) -> bool:
    """Whether a kernel meets autocast below all that a log shows. Inside of what has a class autocast is off."""
    return any(
        Tag.DISPATCHES in line.symbol.tags and proxy.device.type not in bound.symbol.autocast
        for line in log.lines
        for proxy in tensor_inputs_of(line)
    )


def _does(bound: BoundSymbol, plain: Context, rewrite: Rewrite, wanted: CallLog) -> bool:
    """Whether a rewrite performs the wanted operations, and no result shows the memory of a converted argument.

    (The line's results then have new storages, as in the recorded program.)
    """
    try:
        log = log_call(bound, plain, rewrite)
    except LoweringError:
        return False
    return same_operations(log, wanted) and log.converted.isdisjoint(proxy.storage for proxy in log.outputs)


def _converts_inputs(bound: BoundSymbol, rewrite: Rewrite, log: CallLog) -> bool:
    """Whether autocast converts the arguments themselves that a rewrite converts."""
    direct = {line.args[0].name for line in log.lines if line.is_cast()}
    pairs = reversed(list(zip(bound.inputs(), log.inputs, strict=True)))
    logged = {proxy: own for proxy, own in pairs if rewrite.conversion(proxy) is not None}  # the first of equal ones
    return all(own.name in direct for own in logged.values())


def _parts(plain: Context, log: CallLog) -> Trace:
    """Raises LoweringError: the operations are no substitute for the line."""
    if not log.differentiable:
        raise LoweringError("its gradients are its own")
    trace = Trace("call", log.inputs, log.lines, log.outputs, Stage.ACQUIRED, "tracer", plain)
    trace = without_dead_code(without_writes(trace))
    names = [proxy.name for proxy in trace.output]
    if len(set(names)) < len(names) or any(trace.producer(name) is None for name in names):
        raise LoweringError("an output of it is an input, or another output")
    return _recording_gradients(replace(trace, inputs=log.inputs), log)


def _recording_gradients(trace: Trace, log: CallLog) -> Trace:
    """The trace with the values that autograd records requiring grad."""
    recording = set(log.recording)
    logged = producers_of(log.lines).keys()
    for line in trace.symbols:
        flows = any(proxy.name in recording for proxy in line.inputs())
        for proxy in tensor_outputs_of(line):
            if proxy.name not in logged and flows and proxy.dtype.is_floating_point:
                recording.add(proxy.name)  # computed by functionalization
    return trace.with_gradients(recording)
