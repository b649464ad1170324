"""Functions that `torch.compiler.disable` marks: each run of the program calls them as eager does, as one op.

The op has `Tag.UNGUARDED`: nothing that the function reads is guarded, and what it does is not known. The program must
know what the function returns, without calling it more often than eager does:

- A function that runs on fake tensors without any effect is recorded as other opaque functions are. To see that, its
  first call in a recording is observed; then the program is recorded again, and the function's reads are not observed.
- For any other function eager PyTorch runs the call of the program, and `_Watch` describes what the function returns
  for these arguments. The next call is recorded with that.

Each run compares. If the function returns something else, or changes what the program reads, then the run ends, and
eager PyTorch finishes this call: there the functions that have run already only return what they have returned. From
then on eager PyTorch runs the calls of the program.

The wrapper of such a function calls `torch.compiler.is_exporting` just before the function. The interception of that
replaces the code of the function for this call (`thunder_frontend.record.disabled_wrappers`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.errors import Diverged, EndsRecording, RunEagerly, SizeVariesError, UnsupportedError, trying
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of, written_storages
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.location import at
from thunder_core.ir.proxy import storages_of
from thunder_core.ir.size import are_constant
from thunder_core.ir.symbol import Symbol, Tag, as_recorded
from thunder_core.ir.trace import with_bodies
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    EnableTorchFunction,
    FakeTensor,
    no_dispatch,
    peek_interpreter_stack,
    version_of,
)
from thunder_core.symbols.generators import generator_states, set_generator_states
from thunder_core.symbols.opaque import LOCAL, callable_symbol, opaque_symbol
from thunder_core.tracing.fake_tensors import computed_from
from thunder_core.tracing.frames import calling_frame, calls_program, user_location
from thunder_core.tracing.outcome import Outcome, Slot, infer
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.observe.writes import Write, same_writes
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.attempt import RecordAgain
from thunder_frontend.record.disabled_results import (
    Key,
    Returned,
    describe_result,
    identities,
    is_called_in_new_ways,
    key_of,
    known_of,
    name_of,
    reason_of,
)
from thunder_frontend.record.disabled_wrappers import call_instead, disabled_by_user, restore, wrapper_codes
from thunder_frontend.record.interception import Interception, SharedRows
from thunder_frontend.record.recorder import Recorder, program_recorder

_OF_AUTOGRAD: Final = frozenset({Tag.RUNS_AUTOGRAD, Tag.CHANGES_AUTOGRAD})
_MOST_CHANGES: Final = 2  # a first call may initialize something
_NOTE: Final = "calls of disabled functions"


def _is_exporting(recorder: Recorder | None, original: Callable[[], bool]) -> bool:
    """The interception of `torch.compiler.is_exporting`: the calling wrapper then calls `_record` or a `_Watch`."""
    watch = _this_thread.watch if this_thread.recorder is None else None
    if recorder is None and watch is None:
        return original()
    frame = calling_frame()
    function = None if frame is None else disabled_by_user(frame)
    if function is not None and frame is not None:
        variables = frame.f_locals
        instead: Any = partial(_record, recorder) if recorder is not None else watch and watch.call
        call_instead(function, partial(instead, function, tuple(variables["args"]), dict(variables["kwargs"])))
    return original()


_EXPORTING: Final = Interception(
    torch.compiler,
    "is_exporting",
    _is_exporting,
    "a disabled function is one op",
    when=program_recorder,
    always=True,
)


def _rows() -> tuple[Interception, ...]:
    wrapper_codes()  # now, as recording replaces the code that has them
    return (_EXPORTING,)


CALLS: Final = SharedRows(_rows)
"""The row for disabled functions, which also applies to programs that eager PyTorch runs in a `watching` context."""


class _ThisThread(threading.local):
    watch: _Watch | None = None


_this_thread: Final = _ThisThread()


def is_watching() -> bool:
    """Whether this thread is in a `watching` context."""
    return _this_thread.watch is not None


@dataclass(frozen=True, eq=False)
class _Op:
    """The target of an op.

    Attributes:
        returned: what the function returned when the program was recorded.
        context: the modes of the call.
        flat: whether the op returns the new tensors only, as a tuple.
    """

    function: Any
    key: Key
    returned: Returned
    context: Context
    flat: bool

    @calls_program
    def __call__(self, sizes: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function.

        Args:
            sizes: the shape and strides of each tensor that it is to return.

        Raises:
            Diverged: it raised an exception, returned something else, or is not known well enough.
            UnsupportedError: it has changed what the program reads.
        """
        run, given = this_thread.run, tensors_in((args, kwargs))
        if run is not None:
            self._check_known(run)
        before = [] if run is None else run.versions(given)
        this_thread.run = None  # the function may call other programs
        try:
            with _modes(self.context):
                result = self.function(*args, **kwargs)
        except Exception as error:
            if run is None:
                raise
            run.calls.append(_Call(self.function, None, generator_states(), error))
            reason = f"raises {type(error).__name__}"  # which the program may catch
            around = partial(watching, tuple(run.calls))
            raise Diverged(reason_of(self.function, reason), around, stays=True) from None
        finally:
            this_thread.run = run
        if run is None:  # a repetition: second derivatives run the program again
            return self._values(result)
        run.calls.append(_Call(self.function, result, generator_states()))
        difference = self.returned.difference(result, sizes, given)
        if difference is not None:
            raise self._diverged(run, difference)
        change = run.change(given, before)
        if change is not None:  # an earlier op may have read it
            known_of(self.key, self.function).unfit = change
            raise UnsupportedError(
                f"{reason_of(self.function, change)}, which it did not in the call before the program was compiled",
                location=user_location(),
                advice=(
                    "call the program again: from now on eager PyTorch runs it",
                    "or have the function return what it changes, and call it outside of the compiled function",
                ),
            )
        return self._values(result)

    def _check_known(self, run: Any) -> None:
        """Raise `Diverged` before the call if the function cannot be one op, or has not been shown to be."""
        known = known_of(self.key, self.function)
        if known.unfit:
            raise self._diverged(run, known.unfit)
        if self.flat and not known.verified:
            reason = "runs in eager PyTorch to show whether it changes what the program reads"
            around = partial(watching, tuple(run.calls), run.failing)
            raise Diverged(reason_of(self.function, reason), around, stays=True)

    def _diverged(self, run: Any, reason: str) -> Diverged:
        known_of(self.key, self.function).unfit = reason
        return Diverged(reason_of(self.function, reason), partial(watching, tuple(run.calls)))

    def _values(self, result: Any) -> Any:
        if not self.flat:
            return result
        pairs = zip(tensors_in(result), self.returned.results, strict=True)
        return tuple([tensor for tensor, expected in pairs if expected.same_as < 0])


@contextmanager
def _modes(context: Context) -> Iterator[None]:
    """The modes of a call: a differentiated program runs without gradients, and autocast became casts."""
    with ExitStack() as stack:
        if not context.inference:
            stack.enter_context(torch.set_grad_enabled(context.grad_enabled))
        for device, dtype in context.autocast:
            stack.enter_context(torch.autocast(device, dtype, cache_enabled=context.autocast_cache))
        yield


def _record(recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of a disabled function as one op.

    Raises:
        RunEagerly: eager PyTorch has to run the program, always or in this call.
        RecordAgain: the function has no effects, and its reads must not be guarded.
    """
    with recorder.suspension, DisableTorchFunction():
        _check_place(recorder, function)
        call = CallArguments(recorder.inputs, args, kwargs, runs_python=True)
        key = key_of(function, args, kwargs)
        known = known_of(key, function)
        if known.unfit:
            raise RunEagerly(reason_of(function, known.unfit))
        if known.returned is not None:
            return _record_known(recorder, function, key, call, known.returned)
        outcome, fakes = _try(recorder, function, key, call, args, kwargs)
        returned = Returned(outcome.structure, outcome.results)
        return _write(recorder, _Op(function, key, returned, current_context(), False), call, outcome, fakes)


def _check_place(recorder: Recorder, function: Any) -> None:
    """Raise `RunEagerly` where a call cannot be one op that ends the run."""
    if peek_interpreter_stack() is not None or recorder.trace.outer_ops:
        raise RunEagerly(
            reason_of(function, f"is called in a checkpoint, a branch or a transform{at(user_location())}")
        )
    for op in recorder.trace.ops:
        if op.effects.visible and op.symbol.tags.isdisjoint({Tag.UNGUARDED, Tag.GUESS, Tag.ASSERTION}):
            reason = f"is called after {op.symbol.name}, which has an effect that cannot be undone"
            raise RunEagerly(reason_of(function, reason))


def _try(
    recorder: Recorder, function: Any, key: Key, call: CallArguments, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Outcome, list[Any]]:
    """Run a function on fake tensors.

    Raises:
        RunEagerly: this has an effect, or fails: eager PyTorch runs this call, and shows what the function returns.
        RecordAgain: it has none. In the next recording its reads are not observed.
    """
    observer, symbol = recorder.mode.observer, Symbol(name_of(function), function, tags=LOCAL)
    if key in recorder.attempt.harmless:
        observer.pause()
        try:
            return recorder.infer(symbol, args, kwargs, call.variables)
        finally:
            observer.resume()
    before, states = recorder.changes_of_objects(), observer.hidden_states.states()
    advanced = observer.consumed_python_rng()
    try:
        with (
            trying(),
            observer.noting_code() as code,
            observer.without_external_calls(),
            EnableTorchFunction(),
            _WithoutAutograd(),
        ):
            outcome, fakes = recorder.infer(symbol, args, kwargs, call.variables)
    except (Exception, EndsRecording):  # noqa: BLE001 - whatever the function does with fakes
        outcome, fakes = None, []
    harmless = (
        outcome is not None
        and not outcome.written
        and all(leaf is None or type(leaf) is Slot for leaf in iterate_leaves(outcome.structure))
        and same_writes(recorder.changes_of_objects(), before)
        and not observer.hidden_states.changed_since(states)
        and observer.consumed_python_rng() == advanced
        and not (before and observer.change_read_by(code) is not None)
    )
    if outcome is None or not harmless:
        _check_unchanged(before, function)
        if is_called_in_new_ways(function):
            raise RunEagerly(reason_of(function, "is called with other arguments in each call"))
        reason = "runs once in eager PyTorch to show what it returns for these arguments"
        raise RunEagerly(reason_of(function, reason), expected=True, around=watching)
    if advanced:  # such a program cannot be recorded again
        return outcome, fakes
    reason = f"{name_of(function)} is disabled: what it reads is not guarded"
    raise RecordAgain(reason, harmless=recorder.attempt.harmless | {key})


class _WithoutAutograd(TorchFunctionMode):
    """Refuses calls that run autograd, or that set hooks or gradients: of parameters, which are no fakes, they stay."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not _OF_AUTOGRAD.isdisjoint(opaque_symbol(func).tags):
            raise RunEagerly(f"{getattr(func, '__name__', func)} acts on the autograd graph")
        with DisableTorchFunction():  # the recorder's mode is below this one
            return func(*args, **(kwargs or {}))


def _check_unchanged(changes: tuple[Write, ...], function: Any) -> None:
    """Raise `RunEagerly` if the program has changed an object before: it is written when the program ends."""
    if changes:
        raise RunEagerly(reason_of(function, f"may read {changes[0].target.describe()}, which the program has changed"))


def _record_known(recorder: Recorder, function: Any, key: Key, call: CallArguments, known: Returned) -> Any:
    """Record a call of which an earlier one has shown what it returns."""
    _check_unchanged(recorder.changes_of_objects(), function)
    if not all(are_constant(proxy.sizes) for proxy in call.proxies):
        raise SizeVariesError(reason_of(function, "returned its results for other sizes"), location=user_location())
    new = [result for result in known.results if result.same_as < 0]
    requires_grad = [result.requires_grad for result in new]
    mode = recorder.tensors.fake_mode
    with mode.observing() as observed:
        with no_dispatch():
            metas = [torch.empty_strided(each.shape, each.stride, dtype=each.dtype, device="meta") for each in new]
        made: Any = tuple([FakeTensor(mode, meta, each.device) for meta, each in zip(metas, new, strict=True)])
        if recorder.attempt.graph and any(requires_grad):
            with mode:
                made = computed_from(made, requires_grad, [recorder.tensors.fake(each) for each in call.variables])
        outcome, fakes = infer(lambda: made, (), {}, [], observed)
    if not recorder.attempt.graph and any(requires_grad):
        pairs = zip(outcome.results, requires_grad, strict=True)
        outcome, fakes = replace(outcome, results=tuple([replace(one, requires_grad=grad) for one, grad in pairs])), []
    values = iter(_write(recorder, _Op(function, key, known, current_context(), True), call, outcome, fakes))
    tensors = [call.objects[each.same_as] if each.same_as >= 0 else next(values) for each in known.results]
    return map_leaves(lambda leaf: tensors[leaf.index] if type(leaf) is Slot else leaf, known.structure)


def _write(recorder: Recorder, op: _Op, call: CallArguments, outcome: Outcome, fakes: list[Any]) -> Any:
    """Append the op, and return its result."""
    tags = LOCAL | {Tag.UNGUARDED}
    differentiable = any(proxy.requires_grad for proxy in call.proxies)
    differentiable = differentiable or any(result.requires_grad for result in outcome.results)
    if op.context.grad_enabled and differentiable:
        tags |= {Tag.AUTOGRAD}  # the function may use parameters that are not its arguments, and set hooks
    symbol = replace(callable_symbol(op, name_of(op.function)), tags=tags)
    sizes = tuple([(each.shape, each.stride) for each in op.returned.results])
    call.args = (sizes, *call.args)
    recorder.notes.setdefault(_NOTE, []).append(symbol)
    outcome = replace(outcome, random=True, external=True)
    return recorder.writer.record(symbol, call, outcome, fakes, recorder.trace.context_of(symbol))


def why_not_evaluated(recorder: Recorder) -> str | None:
    """Why a program with such ops that fails to be recorded has to run eagerly; None if it has none."""
    symbols = recorder.notes.get(_NOTE)
    if not symbols:
        return None
    return reason_of(
        symbols[0].target.function, "may not run while the program is recorded, which reads a value after it"
    )


def with_writes_as_recorded(ops: tuple[BoundSymbol, ...], inputs: Iterable[Any]) -> tuple[BoundSymbol, ...]:
    """The ops of a program, with `Tag.AS_RECORDED` where a disabled function may see that a tensor is written in place.

    It may hold inputs of the program that are written before, its arguments, and its results.
    """
    if not any(Tag.UNGUARDED in op.symbol.tags for op in ops):
        return ops
    held, outside = set[int](), storages_of(inputs)
    written_before, seen = set[int](), False
    for op in ops:
        if Tag.UNGUARDED in op.symbol.tags:
            held |= {proxy.storage for proxy in tensors_of(op)}
            seen |= not written_before.isdisjoint(outside)
        written_before |= written_storages([op])
    if not seen and held.isdisjoint(written_storages(with_bodies(ops))):
        return ops
    return tuple([replace(op, symbol=as_recorded(op.symbol)) if Tag.UNGUARDED in op.symbol.tags else op for op in ops])


@dataclass(frozen=True, eq=False)
class _Call:
    """A call that has run.

    Attributes:
        states: the states of the random generators after it.
        error: the exception that it has raised; None if it has returned.
    """

    function: Any
    result: Any
    states: tuple[torch.Tensor, ...]
    error: Exception | None = None


class _Watch:
    """Calls of disabled functions by a program that eager PyTorch runs.

    Args:
        calls: those that have run already, in order: they return what they have returned.
        failing: returns what a compiled program reads and what has changed since; None if there is no such program.
    """

    def __init__(self, calls: Iterable[_Call], failing: Callable[[], list[str]] | None) -> None:
        self._calls = deque(calls)
        self._failing = failing

    @calls_program
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function, which is described for the next recording of its program."""
        if self._calls and identities(self._calls[0].function) == identities(function):
            done = self._calls.popleft()
            set_generator_states(done.states)
            if done.error is not None:
                raise done.error
            return done.result
        self._calls.clear()
        key, given = key_of(function, args, kwargs), tensors_in((args, kwargs))
        before = [version_of(tensor) for tensor in given if not tensor.is_inference()]
        failing = [] if self._failing is None else self._failing()
        outer, _this_thread.watch = _this_thread.watch, None  # it may call other disabled functions
        try:
            result = function(*args, **kwargs)
        finally:
            _this_thread.watch = outer
        known = known_of(key, function)
        if before != [version_of(tensor) for tensor in given if not tensor.is_inference()]:
            known.unfit = "writes to its argument"
        elif known.returned is None:
            described = describe_result(result, given)
            if isinstance(described, str):
                known.unfit = described
            else:
                known.returned = described
        if self._failing is not None:
            changed = [change for change in self._failing() if change not in failing]
            known.verified = not changed
            known.changes += bool(changed)
            if known.changes >= _MOST_CHANGES:
                known.unfit = f"changes what the program reads ({changed[0] if changed else 'in some calls'})"
        return result


@contextmanager
def watching(calls: Iterable[_Call] = (), failing: Callable[[], list[str]] | None = None) -> Iterator[None]:
    """A context in which eager PyTorch runs a program, and its disabled functions are described.

    Args:
        calls, failing: as for `_Watch`.
    """
    outer, _this_thread.watch = _this_thread.watch, _Watch(calls, failing)
    try:
        with CALLS.entered():
            yield
    finally:
        restore()
        _this_thread.watch = outer
