"""Submodules and optimizer updates that depend on values: one op of the trace, which calls them as eager does.

A submodule may depend on values although the shapes of its results do not. The router of a mixture of experts is the
usual case: ``torch.where(mask)`` has one row for each token of an expert, and the sum over the experts has the shape of
the input again.

``step`` of an optimizer creates and looks up its state in Python, which is recorded, and passes lists of tensors to a
function, for example `torch.optim.adam.adam`. Many of these functions compute Python numbers from step counters or from
a learning rate in a tensor. The op of such a function has no result; it writes the parameters and their state in place.

If such a call cannot be recorded, the program is recorded again with one op for each of these calls.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from traceback import walk_tb
from types import CodeType
from typing import Any, Final

import torch

from thunder_core.checks.source import Source
from thunder_core.ir.effects import Effects
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import with_bodies
from thunder_core.ir.tree import iterate_leaves, tensors_in
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.control_flow import CALL_MODULE
from thunder_core.symbols.opaque import OPAQUE
from thunder_core.tracing.frames import user_location
from thunder_frontend.observe.writes import Write, same_writes
from thunder_frontend.record import data_dependence
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.attempt import Key, RecordAgain, key_of
from thunder_frontend.record.data_dependence import Declined, ValueRequest
from thunder_frontend.record.object_layout import copy_module
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.sampling import record_sampled


def module_to_blame(error: BaseException, root: Callable[..., Any], known: frozenset[Key]) -> torch.nn.Module | None:
    """The innermost module whose ``forward`` raised an error, other than those of ``known``; None if there is none.

    Never the whole program, unless it is a layer of PyTorch, as a normalization with a cumulative average.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    modules = [frame.f_locals.get("self") for frame in frames if frame.f_code.co_name == "forward"]
    parts = [module for module in modules if isinstance(module, torch.nn.Module) and _is_part(module, root)]
    return next((module for module in reversed(parts) if key_of(module) not in known), None)


def update_to_blame(error: BaseException, known: frozenset[Any]) -> Callable[..., None] | None:
    """The outermost function of an optimizer that raised an error, other than those of ``known``."""
    updates = [_CODES.get(frame.f_code) for frame, _ in walk_tb(error.__traceback__)]
    return next((update for update in updates if update is not None and update not in known), None)


def _is_part(module: torch.nn.Module, root: Callable[..., Any]) -> bool:
    """Whether a module is not the whole program, or is a layer of PyTorch without submodules."""
    return module is not root or (isinstance(key_of(module), int) and not any(module.children()))


def call_eagerly(recorder: Recorder, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record one call of a module as one op.

    Raises:
        DataDependentError: the metadata of its result depends on values, or cannot be inferred from samples; or the
            program creates the module, so that each call has another one.
    """
    with recorder.suspension, DisableTorchFunction():
        return _record_module(recorder, module, args, kwargs)


def _record_module(recorder: Recorder, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    cause = data_dependence.ValueNeeded(type(module).__qualname__)
    call = CallArguments(recorder.inputs, args, kwargs)
    reason = "" if recorder.inputs.has_path(module) else "the program creates the module"
    before = recorder.changes_of_objects()
    if any(_is_in(write, recorder.mode.observer.path_to(module)) for write in before):
        reason = "the program changes the module before, which is written when the program ends"
    if not call.foldable:
        reason = "the module may write objects among its arguments, of which no copy can be tried"
    if reason:
        raise data_dependence.error(CALL_MODULE, call.variables, user_location(), cause, reasons=(reason,))
    args = (module, *args)
    duplicate: list[torch.nn.Module] = []
    observer = recorder.mode.observer

    def try_copy(_module: Any, *tried: Any, **named: Any) -> Any:
        if not duplicate:
            observer.pause()
            try:
                duplicate.append(copy_module(module))
            finally:
                observer.resume()
        return duplicate[0](*tried, **named)

    first = len(recorder.trace.ops)
    request = ValueRequest(CALL_MODULE, args, kwargs, CallArguments(recorder.inputs, args, kwargs), cause)
    reply = record_sampled(recorder, request, try_copy)
    if not same_writes(recorder.changes_of_objects(), before):  # each run of the op makes them as well
        reply = Declined("it changes objects outside of the module")
    if isinstance(reply, Declined):
        cause.add_note(reply.reason)
        place, reasons = user_location(), (reply.reason,)
        raise data_dependence.error(CALL_MODULE, call.variables, place, cause, reasons=reasons) from cause
    recorder.trace.ops[first] = replace(recorder.trace.ops[first], effects=Effects(random=True, external=True))
    return reply.result


def _is_in(write: Write, path: Source | None) -> bool:
    """Whether a write changes an object at a path, or a part of it."""
    place: Source | None = write.target
    while place is not None and place != path:
        place = place.parent
    return place is not None


# Modules of `torch.optim` with a function of the same name that takes ``params, grads, ...``, and returns nothing. It
# writes parameters and state in place; gradients it only reads.
_MODULES: Final = (
    "adadelta",
    "_adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "_muon",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
)


def _functions() -> Iterator[tuple[Any, str, Callable[..., None]]]:
    """The functions of the installed PyTorch, with their module and name."""
    for name in _MODULES:
        module = sys.modules.get(f"torch.optim.{name}")
        function = getattr(module, name.lstrip("_"), None)
        if function is not None:
            yield module, name.lstrip("_"), function


OPTIMIZERS: Final = frozenset({"torch.optim.optimizer", *(f"torch.optim.{name}" for name in _MODULES)})
UPDATES: Final = tuple(_functions())
_CODES: Final[dict[CodeType, Callable[..., None]]] = {
    inspect.unwrap(function).__code__: function for _, _, function in UPDATES
}
_SYMBOLS: Final = {
    function: Symbol(f"{module.__name__}.{name}", function, tags=OPAQUE) for module, name, function in UPDATES
}


def _is_one_op(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the only effect of a call is to write its tensor arguments.

    With ``differentiable`` autograd records the update. The first update with momentum of `torch.optim.SGD` puts new
    tensors into a list that is its argument.
    """
    if kwargs.get("differentiable"):
        return False
    return not kwargs.get("momentum") or all(leaf is not None for leaf in iterate_leaves(args))


def _record_update(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = CallArguments(recorder.inputs, args, kwargs, numbers=(float,))
    outcome, fakes = recorder.infer(replace(symbol, target=_write), args, kwargs, call.variables)
    recorder.writer.record(symbol, call, outcome, fakes, recorder.trace.context_of(symbol))


def _write(params: list[torch.Tensor], grads: list[torch.Tensor], *state: Any, **options: Any) -> None:
    """Write the tensors that an update writes: those in all lists but the gradients. Options are only read."""
    lists = [options.pop(name) for name in list(options) if isinstance(options[name], list)]
    for tensor in tensors_in((params, state, lists)):
        if tensor is not options.get("lr"):
            tensor.zero_()


def update(
    function: Callable[..., None], recorder: Recorder, original: Callable[..., None], /, *args: Any, **kwargs: Any
) -> None:
    """The interception of a function of an optimizer, one of `UPDATES`.

    Raises:
        RecordAgain: the function depends on values that each run would check, such as those of step counters.
    """
    is_one_op, one_ops = _is_one_op(args, kwargs), recorder.attempt.eager_updates
    if is_one_op and function in one_ops:
        with recorder.suspension, DisableTorchFunction():
            _record_update(recorder, _SYMBOLS[function], args, kwargs)
        return
    start = len(recorder.trace.ops)
    original(*args, **kwargs)
    if is_one_op and any(Tag.GUESS in op.symbol.tags for op in with_bodies(recorder.trace.ops[start:])):
        raise RecordAgain("an optimizer update depends on values", eager_updates=one_ops | {function})
