"""Functions that `torch.compiler.disable` marks: each run of the program calls them as eager does, as one op.

The op has `Tag.UNGUARDED`: nothing that the function reads is guarded, and what it does is not known. So the program has
to know what the function returns, without calling it more often than eager does:

- A function that runs on fake tensors without any effect is recorded as other opaque functions are. To see that, its
  first call in a recording is observed; then the program is recorded again, and the function's reads are not observed.
- For any other function eager PyTorch runs the call of the program, and `_Watch` describes what the function returns
  for these arguments. The next call is recorded with that.

Each run compares. If the function returns something else, or changes what the program reads, then the run ends, and
eager PyTorch finishes this call: there the functions that have run already only return what they have returned. From
then on eager PyTorch runs the calls of the program.

The wrappers of these functions are closures of PyTorch, which no mode intercepts. They call
`torch.compiler.is_exporting` just before the function; its interception replaces the code of the function for this call.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.errors import Diverged, EndsRecording, RunEagerly, SizeVariesError, UnsupportedError, trying
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of, written_storages
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.location import at
from thunder_core.ir.proxy import TensorProxy, storages_of
from thunder_core.ir.size import are_constant
from thunder_core.ir.symbol import Symbol, Tag, as_recorded
from thunder_core.ir.trace import with_bodies
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import (
    DisableContext,
    DisableTorchFunction,
    EnableTorchFunction,
    FakeTensor,
    get_nonrecursive_disable_wrapper,
    no_dispatch,
    peek_interpreter_stack,
    storage_identity,
    version_of,
)
from thunder_core.symbols.generators import generator_states, set_generator_states
from thunder_core.symbols.opaque import LOCAL, callable_symbol, opaque_symbol
from thunder_core.tracing.fake_tensors import computed_from
from thunder_core.tracing.frames import calling_frame, calls_program, user_location
from thunder_core.tracing.outcome import Outcome, Result, Slot, infer
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.observe.writes import Write, same_writes
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.attempt import RecordAgain
from thunder_frontend.record.interception import Interception, SharedRows, calling_instead, copy_of
from thunder_frontend.record.recorder import Recorder, program_recorder
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_frontend.record.traced_tensor import variable_of

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, torch.dtype, torch.device})
_RETURNS_LATER: Final = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_OF_AUTOGRAD: Final = frozenset({Tag.RUNS_AUTOGRAD, Tag.CHANGES_AUTOGRAD})
_MOST_KNOWN: Final = 4096  # functions with the metadata of their arguments; then all are forgotten
_MOST_KEYS: Final = 8  # of one function
_MOST_CHANGES: Final = 2  # a first call may initialize something
_NOTE: Final = "calls of disabled functions"

Key = tuple[Any, ...]


# ---------------------------------------------------------------- the calls of wrappers


def _disabled_by_user(frame: FrameType) -> Any:
    """The function that a frame of a wrapper is about to call; None for other frames, and for PyTorch's own functions.

    PyTorch disables functions of its own, such as `torch.utils.checkpoint.checkpoint`; these are part of the program.
    """
    codes = _wrapper_codes()
    if frame.f_code is codes[0]:
        variables = frame.f_locals
        return variables["fn"] if variables["self"].wrapping else None
    if frame.f_code is codes[1]:
        function = frame.f_locals["fn"]
        return None if _is_of_pytorch(function) else function
    return None


def _is_of_pytorch(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("torch.")


@cache
def _wrapper_codes() -> tuple[CodeType, CodeType]:
    """The code of the wrappers, with and without ``recursive``."""

    def nested(function: FunctionType, name: str) -> CodeType:
        return next(each for each in function.__code__.co_consts if getattr(each, "co_name", "") == name)

    recursive = nested(DisableContext.__call__, "_fn")
    return recursive, nested(get_nonrecursive_disable_wrapper, "nonrecursive_disable_wrapper")


def _is_exporting(recorder: Recorder | None, original: Callable[[], bool]) -> bool:
    """The interception of `torch.compiler.is_exporting`: the calling wrapper then calls `_record` or a `_Watch`."""
    watch = _this_thread.watch
    if recorder is None and (watch is None or this_thread.recorder is not None):
        return original()
    frame = calling_frame()
    function = None if frame is None else _disabled_by_user(frame)
    if function is not None and frame is not None:
        variables = frame.f_locals
        instead = watch.call if recorder is None else partial(_record, recorder)
        _call_instead(function, partial(instead, function, tuple(variables["args"]), dict(variables["kwargs"])))
    return original()


def _rows() -> tuple[Interception, ...]:
    _wrapper_codes()  # now, as recording replaces the code that has them
    purpose = "a disabled function is one op"
    return (
        Interception(torch.compiler, "is_exporting", _is_exporting, purpose, when=program_recorder, always=True),
    )


CALLS: Final = SharedRows(_rows)
"""The row for disabled functions, which also applies to programs that eager PyTorch runs in a `watching` context."""


def _call_instead(function: Any, call: Callable[[], Any]) -> None:
    """Have the next call of a function by this thread call ``call`` instead. Functions in C are called as they are."""
    code = _python_function(function)
    if code is None:
        return
    thread, original, pending = threading.get_ident(), copy_of(code), [call]

    @calls_program
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        _restore()
        return pending.pop()()  # the observer holds this code until the end of the recording

    _restore()  # that of a call that an exception prevented
    _this_thread.restore = calling_instead(code, replacement)


def _restore() -> None:
    restore, _this_thread.restore = _this_thread.restore, None
    if restore is not None:
        restore()


def _python_function(function: Any) -> FunctionType | None:
    """The Python function that a call of an object calls first; None if there is none."""
    if isinstance(function, FunctionType):
        return function
    if isinstance(function, MethodType):
        return _python_function(function.__func__)
    if isinstance(function, partial):
        return _python_function(function.func)
    call = getattr(type(function), "__call__", None)  # noqa: B004  the method itself
    return call if isinstance(call, FunctionType) and not isinstance(function, type) else None


def disable(recorder: Recorder, original: Callable[..., Any], context: Any, function: Any, /) -> Any:
    """The interception of `torch.compiler.disable` itself: each run may mark another function.

    Raises:
        RunEagerly: the program marks a function.
    """
    if context.wrapping:
        raise RunEagerly(f"the program calls torch.compiler.disable{at(user_location())}")
    return original(context, function)


def disable_not_recursive(recorder: Recorder, original: Callable[..., Any], function: Any, /) -> Any:
    """As `disable`, for a function whose callees are not disabled."""
    if not _is_of_pytorch(function):
        raise RunEagerly(f"the program calls torch.compiler.disable{at(user_location())}")
    return original(function)


class _ThisThread(threading.local):
    watch: _Watch | None = None
    restore: Callable[[], None] | None = None


_this_thread: Final = _ThisThread()


def is_watching() -> bool:
    """Whether this thread is in a `watching` context."""
    return _this_thread.watch is not None


# ---------------------------------------------------------------- what is known of a function


@dataclass(frozen=True)
class _Returned:
    """What a function returns for the arguments of a key.

    Attributes:
        structure: the result with a `Slot` for each tensor.
        results: the tensors.
    """

    structure: Any
    results: tuple[Result, ...]

    def difference(self, result: Any, sizes: tuple[Any, ...], arguments: list[torch.Tensor]) -> str | None:
        """How another result differs; None if it does not.

        Args:
            sizes: shape and stride of each tensor, in this run.
        """
        tensors = tensors_in(result)
        count = iter(range(len(tensors)))
        structure = map_leaves(lambda leaf: Slot(next(count)) if isinstance(leaf, torch.Tensor) else leaf, result)
        if not _equal(structure, self.structure):
            return "returns other objects than before"
        for tensor, expected, (shape, stride) in zip(tensors, self.results, sizes, strict=True):
            if expected.same_as >= 0:
                if tensor is not arguments[expected.same_as]:
                    return "does not return its argument, as before"
                continue
            found = (tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad, tensor.layout)
            wanted = (tuple(shape), expected.dtype, expected.device, expected.requires_grad, expected.layout)
            if found != wanted:
                return f"returns a tensor of {_text(*found)} instead of {_text(*wanted)}"
            if tensor.layout is torch.strided and tensor.numel() and not _same_strides(tensor, stride):
                return f"returns a tensor with strides {tensor.stride()} instead of {tuple(stride)}"
        return None


def _equal(one: Any, other: Any) -> bool:
    """Whether two nested results without tensors are equal, with equal classes of their parts."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124  nan


def _same_strides(tensor: torch.Tensor, stride: tuple[int, ...]) -> bool:
    pairs = zip(tensor.shape, tensor.stride(), stride, strict=True)
    return all(found == wanted for size, found, wanted in pairs if size != 1)


def _text(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, grad: bool, layout: torch.layout) -> str:
    return f"shape {shape}, {dtype}, on {device}{', with gradient' if grad else ''}"


@dataclass(eq=False)
class _Known:
    """What calls of a function in eager PyTorch have shown.

    Attributes:
        references: to the objects of the key.
        returned: what the function returns.
        unfit: why it cannot be one op; empty if it can.
        verified: whether it has left all that a program reads as it was.
        changes: how often it has not.
    """

    references: tuple[weakref.ref[Any], ...]
    returned: _Returned | None = None
    unfit: str = ""
    verified: bool = False
    changes: int = 0


_known: Final[dict[Key, _Known]] = {}


def _known_of(key: Key, function: Any) -> _Known:
    """What is known of a function for a key."""
    objects, known = _identities(function), _known.get(key)
    if known is not None and len(known.references) == len(objects):
        if all(reference() is each for reference, each in zip(known.references, objects, strict=True)):
            return known
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    try:
        known = _known[key] = _Known(tuple(map(weakref.ref, objects)))
    except TypeError:  # an object of the key has no weak references, and may be another one in the next call
        known = _Known((), unfit="is an object without weak references")
    return known


def _identities(function: Any) -> list[Any]:
    """The objects that make up a function: bound methods are new objects at each access."""
    if isinstance(function, MethodType):
        return [*_identities(function.__func__), function.__self__]
    return [function]


def _key_of(function: Any, args: Any, kwargs: Any) -> Key:
    """The function, the metadata of its arguments, and PyTorch's modes."""
    leaves: list[Any] = []
    structure = map_leaves(lambda leaf: leaves.append(_describe(leaf)) or len(leaves), (args, tuple(kwargs.items())))
    return (*map(id, _identities(function)), current_context(), repr(structure), *leaves)


def _describe(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        variable = variable_of(leaf)
        if variable is not None:
            proxy = variable.proxy
            return proxy.shape, proxy.stride, proxy.dtype, proxy.device, proxy.requires_grad
        strides = leaf.stride() if leaf.layout is torch.strided else ()
        return tuple(leaf.shape), strides, leaf.dtype, leaf.device, leaf.requires_grad
    if type(leaf) in (float, complex):
        return type(leaf)
    return (type(leaf), leaf) if type(leaf) in _PLAIN else (type(leaf), id(leaf))


def _name_of(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module) and not isinstance(function, torch.nn.Module):
        name = str(getattr(function, "__name__", ""))
        return type(owner).__qualname__ if name.endswith("_call_impl") else f"{type(owner).__qualname__}.{name}"
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _reason(function: Any, reason: str) -> str:
    return f"{_name_of(function)}, which torch.compiler.disable marks, {reason}"


# ---------------------------------------------------------------- its ops


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
    returned: _Returned
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
            raise Diverged(_reason(self.function, reason), around, stays=True) from None
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
            _known_of(self.key, self.function).unfit = change
            raise UnsupportedError(
                f"{_reason(self.function, change)}, which it did not in the call before the program was compiled",
                location=user_location(),
                advice=(
                    "call the program again: from now on eager PyTorch runs it",
                    "or have the function return what it changes, and call it outside of the compiled function",
                ),
            )
        return self._values(result)

    def _check_known(self, run: Any) -> None:
        """Raise `Diverged` before the call if the function cannot be one op, or has not been shown to be."""
        known = _known_of(self.key, self.function)
        if known.unfit:
            raise self._diverged(run, known.unfit)
        if self.flat and not known.verified:
            reason = "runs in eager PyTorch to show whether it changes what the program reads"
            around = partial(watching, tuple(run.calls), run.failing)
            raise Diverged(_reason(self.function, reason), around, stays=True)

    def _diverged(self, run: Any, reason: str) -> Diverged:
        _known_of(self.key, self.function).unfit = reason
        return Diverged(_reason(self.function, reason), partial(watching, tuple(run.calls)))

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
        key = _key_of(function, args, kwargs)
        known = _known_of(key, function)
        if known.unfit:
            raise RunEagerly(_reason(function, known.unfit))
        if known.returned is not None:
            return _record_known(recorder, function, key, call, known.returned)
        outcome, fakes = _try(recorder, function, key, call, args, kwargs)
        returned = _Returned(outcome.structure, outcome.results)
        return _write(recorder, _Op(function, key, returned, current_context(), False), call, outcome, fakes)


def _check_place(recorder: Recorder, function: Any) -> None:
    """Raise `RunEagerly` where a call cannot be one op that ends the run."""
    if peek_interpreter_stack() is not None or recorder.trace.outer_ops:
        raise RunEagerly(_reason(function, f"is called in a checkpoint, a branch or a transform{at(user_location())}"))
    for op in recorder.trace.ops:
        if op.effects.visible and op.symbol.tags.isdisjoint({Tag.UNGUARDED, Tag.GUESS, Tag.ASSERTION}):
            reason = f"is called after {op.symbol.name}, which has an effect that cannot be undone"
            raise RunEagerly(_reason(function, reason))


def _try(
    recorder: Recorder, function: Any, key: Key, call: CallArguments, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Outcome, list[Any]]:
    """Run a function on fake tensors.

    Raises:
        RunEagerly: this has an effect, or fails: eager PyTorch runs this call, and shows what the function returns.
        RecordAgain: it has none. In the next recording its reads are not observed.
    """
    observer, symbol = recorder.mode.observer, Symbol(_name_of(function), function, tags=LOCAL)
    if key in recorder.attempt.harmless:
        observer.pause()
        try:
            return recorder.infer(symbol, args, kwargs, call.variables)
        finally:
            observer.resume()
    before, states = recorder.changes_of_objects(), observer.hidden_states.states()
    advanced = observer.consumed_python_rng()
    try:
        with trying(), observer.noting_code() as code, observer.without_external_calls():
            with EnableTorchFunction(), _WithoutAutograd():
                outcome, fakes = recorder.infer(symbol, args, kwargs, call.variables)
    except (Exception, EndsRecording):  # whatever the function does with fakes
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
        if _is_called_in_new_ways(function):
            raise RunEagerly(_reason(function, "is called with other arguments in each call"))
        reason = "runs once in eager PyTorch to show what it returns for these arguments"
        raise RunEagerly(_reason(function, reason), expected=True, around=watching)
    if advanced:  # such a program cannot be recorded again
        return outcome, fakes
    reason = f"{_name_of(function)} is disabled: what it reads is not guarded"
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
        raise RunEagerly(_reason(function, f"may read {changes[0].target.describe()}, which the program has changed"))


def _is_called_in_new_ways(function: Any) -> bool:
    identities = tuple(map(id, _identities(function)))
    return sum(other[: len(identities)] == identities for other in _known) > _MOST_KEYS


def _record_known(recorder: Recorder, function: Any, key: Key, call: CallArguments, known: _Returned) -> Any:
    """Record a call of which an earlier one has shown what it returns."""
    _check_unchanged(recorder.changes_of_objects(), function)
    if not all(are_constant(proxy.sizes) for proxy in call.proxies):
        raise SizeVariesError(_reason(function, "returned its results for other sizes"), location=user_location())
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
    differentiable = any(each.requires_grad for each in (*call.proxies, *outcome.results))
    if op.context.grad_enabled and differentiable:
        tags |= {Tag.AUTOGRAD}  # it may use parameters of its own, and set hooks
    symbol = replace(callable_symbol(op, _name_of(op.function)), tags=tags)
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
    return _reason(symbols[0].target.function, "may not run while the program is recorded, which reads a value after it")


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


# ---------------------------------------------------------------- calls in eager PyTorch


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
        if self._calls and _identities(self._calls[0].function) == _identities(function):
            done = self._calls.popleft()
            set_generator_states(done.states)
            if done.error is not None:
                raise done.error
            return done.result
        self._calls.clear()
        key, given = _key_of(function, args, kwargs), tensors_in((args, kwargs))
        before = [version_of(tensor) for tensor in given if not tensor.is_inference()]
        failing = [] if self._failing is None else self._failing()
        outer, _this_thread.watch = _this_thread.watch, None  # it may call other disabled functions
        try:
            result = function(*args, **kwargs)
        finally:
            _this_thread.watch = outer
        known = _known_of(key, function)
        if before != [version_of(tensor) for tensor in given if not tensor.is_inference()]:
            known.unfit = "writes to its argument"
        elif known.returned is None:
            described = _describe_result(result, given)
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
def watching(
    calls: Iterable[_Call] = (), failing: Callable[[], list[str]] | None = None
) -> Iterator[None]:
    """A context in which eager PyTorch runs a program, and its disabled functions are described.

    Args:
        calls, failing: as for `_Watch`.
    """
    outer, _this_thread.watch = _this_thread.watch, _Watch(calls, failing)
    try:
        with CALLS.entered():
            yield
    finally:
        _restore()
        _this_thread.watch = outer


def _describe_result(result: Any, given: list[torch.Tensor]) -> _Returned | str:
    """What a function has returned; a text with the reason why an op cannot return it.

    Args:
        given: the tensors among its arguments.
    """
    results: list[Result] = []
    storages = {storage_identity(tensor.untyped_storage()) for tensor in given if _is_dense(tensor)}
    for leaf in iterate_leaves(result):
        if not isinstance(leaf, torch.Tensor):
            if type(leaf) not in _PLAIN:
                return f"returns an object of type {type(leaf).__qualname__}"
            continue
        same_as = next((index for index, tensor in enumerate(given) if tensor is leaf), -1)
        if same_as < 0 and not (_is_dense(leaf) and type(leaf) is torch.Tensor):
            return f"returns a {type(leaf).__qualname__} that is no plain dense tensor"
        if same_as < 0:
            storage = storage_identity(leaf.untyped_storage())
            if storage in storages:
                return "returns tensors that share memory with each other, or with its arguments"
            storages.add(storage)
        stride = leaf.stride() if _is_dense(leaf) else ()
        metadata = (tuple(leaf.shape), stride, 0, leaf.dtype, leaf.device, leaf.requires_grad, leaf.layout)
        results.append(Result(same_as, -1, -1, *metadata))
    count = iter(range(len(results)))
    return _Returned(
        map_leaves(lambda leaf: Slot(next(count)) if isinstance(leaf, torch.Tensor) else leaf, result), tuple(results)
    )


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_mkldnn)
