"""One recording of a program: its Python runs under the observer and the recorder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from thunder_core.checks.global_state import replaces_builtins
from thunder_core.checks.source import ConstantSource, Source
from thunder_core.checks.varying_sizes import VaryingSizes
from thunder_core.contract import Reconstruction, RecordedSizes, Recording
from thunder_core.errors import (
    AcquisitionError,
    DataDependentError,
    EndsRecording,
    RunEagerly,
    SizeVariesError,
    UnsupportedError,
    recording,
)
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import only_kernels
from thunder_core.ir.proxy import NumberProxy, Proxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.pytorch_internals import (
    ForceDispatchKeyGuard,
    dispatch_tls_local_exclude_set,
    dispatch_tls_local_include_set,
)
from thunder_core.tracing.frames import calls_program, raising_location
from thunder_core.tracing.signal_handlers import of_signal_handler
from thunder_core.tracing.sizes import Sizes, compiling_with
from thunder_core.tracing.tracebacks import free_frames, note
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record import conversions, data_dependence, disabled_functions, profiler_ranges, subclasses
from thunder_frontend.record.aten_calls import record_aten
from thunder_frontend.record.attempt import CONSTANT_NUMBERS, Attempt, RecordAgain
from thunder_frontend.record.communication import communication
from thunder_frontend.record.final_checks import (
    check_arrays,
    check_buffers,
    check_cached_functions,
    check_generators,
    check_kernels,
    check_leaks,
    check_outliving_generators,
)
from thunder_frontend.record.gradient_state import gradients_of_inputs
from thunder_frontend.record.input_numbers import InputNumbers
from thunder_frontend.record.input_sizes import InputSizes
from thunder_frontend.record.interceptions import intercepted, intercepting, original_of, stand_in_of
from thunder_frontend.record.mode import AcquisitionMode, length
from thunder_frontend.record.module_calls import note_module
from thunder_frontend.record.program_exceptions import contents, ends_program, raising
from thunder_frontend.record.reconstruction import Reconstructor
from thunder_frontend.record.recorder import Recorder, set_active_recorder
from thunder_frontend.record.resolvers import RESOLVERS
from thunder_frontend.record.traced_number import ClassNeeded

_RUN_AGAIN: Final = (RecordAgain, RunEagerly, DataDependentError, UnsupportedError)
"""Exceptions of a recording after which the program may run once more."""
_REPEATED: Final = "changes of Python objects may be those of functions that are one op"


def record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attempt: Attempt,
    advanced: list[str],
) -> Recording:
    """Record ``function(*args, **kwargs)`` once, with the options of ``attempt``. Changes to Python objects are undone.

    Args:
        advanced: if the program has to be recorded or run again, the names of iterators and files that it advanced and
            that cannot be rewound are appended.

    Raises:
        RecordAgain: the program has to be recorded with another attempt.
        RunEagerly: as for `PythonFrontEnd.record`.
        Exception: as for `PythonFrontEnd.record`, which may start another attempt after it.
    """
    if not attempt.has_data_dependent_sizes and attempt.varying is None:
        observer = Observer(function, args, kwargs, stand_in_of)
        return _record(function, attempt, advanced, observer, None)
    sizes = Sizes(general=attempt.has_data_dependent_sizes and attempt.general)
    input_sizes = InputSizes(attempt.varying or VaryingSizes(), sizes, InputNumbers())
    numbers = attempt.varying.wanted_numbers() if attempt.varying is not None else []
    with compiling_with(sizes):
        observer = Observer(function, args, kwargs, stand_in_of, numbers, input_sizes.number, {"len": length})
        return _record(function, attempt, advanced, observer, input_sizes)


def _record(
    function: Callable[..., Any],
    attempt: Attempt,
    advanced: list[str],
    observer: Observer,
    input_sizes: InputSizes | None,
) -> Recording:
    recorder = Recorder(
        partial(_source_of, observer),
        RESOLVERS,
        record_aten,
        attempt,
        closure_of=observer.closure_of,
        generators=observer.generators,
        input_sizes=input_sizes,
    )
    outputs: list[Proxy] = []
    try:
        with _dispatch_keys_restored():
            reconstruction, raised, random_states = _run_and_undo(function, recorder, observer, outputs, advanced)
        if raised is None:  # the frames of an exception hold tensors of the program
            recorder.inputs.created_objects.close()  # it holds functions over tensors of the program
            recorder.notes.clear()  # so do interceptions
            try:
                check_leaks(recorder.tensors)
            except RunEagerly:
                advanced += observer.rewind()
                raise
        gradients = gradients_of_inputs(recorder, observer) if raised is None else {}
        trace = _trace_of(recorder, outputs, raised)
        inputs = tuple(recorder.inputs)
    except BaseException:
        observer.undo()  # again: a signal handler may have raised before it was done
        observer.close()
        raise
    finally:
        recorder.close()
    try:
        if raised is None:
            check_outliving_generators(observer.generators)
        guards, state = observer.guards(), observer.global_state
    finally:
        observer.close()
    values = tuple([item.value for item in inputs])
    return Recording(
        trace,
        tuple([item.source for item in inputs]),
        values,
        guards,
        state,
        reconstruction,
        raised,
        _sizes(attempt, input_sizes),
        random_states,
        saw_strides=recorder.saw_strides,
        traces_numbers=attempt.guesses is None or attempt.guesses.numbers,
        calls_classes=any(subclasses.has_torch_function(type(v)) for v in values if isinstance(v, torch.Tensor)),
        retries=attempt.retries,
        gradients=gradients,
    )


def _sizes(attempt: Attempt, input_sizes: InputSizes | None) -> RecordedSizes:
    sizes = RecordedSizes(why_constant=attempt.constant_sizes, constant_floats=attempt.constant_floats)
    if input_sizes is None:
        return sizes
    sizes = replace(sizes, facts=input_sizes.floats.facts(), defined=tuple(input_sizes.sizes.defined))
    if not _varies(input_sizes):
        return sizes
    return replace(sizes, symbols=input_sizes.sizes, inputs=tuple(input_sizes.inputs))


@contextmanager
def _dispatch_keys_restored() -> Iterator[None]:
    """The dispatch keys of the thread are afterwards those of before, also if an exception leaves the context.

    Frames of PyTorch hold guards that restore the keys when they are freed (`torch._tensor_str._str`). The traceback of
    an exception holds the frames, so that this would happen later: transforms of `torch.func` would fail from then on.
    """
    with ForceDispatchKeyGuard(dispatch_tls_local_include_set(), dispatch_tls_local_exclude_set()):
        try:
            yield
        except BaseException as error:
            free_frames(error)
            raise


def _source_of(observer: Observer, value: Any) -> Source | None:
    """The path to an object. A function that is intercepted, such as `print` as a hook, is a constant."""
    source = observer.source_of(value)
    if source is None and (original := original_of(value)) is not value:
        return ConstantSource(original)
    return source


def _run_and_undo(
    function: Callable[..., Any], recorder: Recorder, observer: Observer, outputs: list[Proxy], advanced: list[str]
) -> tuple[Reconstruction, BaseException | None, tuple[str, ...]]:
    """Call `_run_checked`, and undo the program's changes of Python objects; ``advanced`` as for `record`.

    Also returns the names of the random generators outside of PyTorch that the program consumed.
    """
    try:
        reconstruction, raised = _run_checked(function, recorder, observer, outputs)
        random_states = tuple(observer.consumed_python_rng())
        check_generators(observer.generators)
        return reconstruction, raised, random_states
    except (Exception, RecordAgain, RunEagerly, ClassNeeded) as error:
        ending = _ending(error, recorder, observer)
        if isinstance(ending, _RUN_AGAIN) or recorder.inputs.input_sizes is not None:
            advanced += observer.rewind()
        if ending is error:
            del ending  # it would form a cycle with this frame, which its traceback holds
            raise
        raise ending from None
    finally:
        observer.undo()


def _varies(input_sizes: InputSizes | None) -> bool:
    return input_sizes is not None and bool(input_sizes.inputs or input_sizes.sizes.defined)


def _run_checked(
    function: Callable[..., Any], recorder: Recorder, observer: Observer, outputs: list[Proxy]
) -> tuple[Reconstruction, BaseException | None]:
    """Call `_run`, then check that the recording is valid for the numbers of other calls, too."""
    input_sizes = recorder.inputs.input_sizes
    if input_sizes is not None:
        input_sizes.floats.bind(recorder)
    with recording():
        reconstruction, raised = _run(function, recorder, observer, outputs)
    if recorder.attempt.converting and (
        raised is not None or observer.reads_class_of or observer.may_catch_conversions
    ):
        raise RecordAgain("int and float are classes", converting=None)
    readers = _readers_of_classes(recorder, observer)
    if readers:
        _replace_type(recorder, readers)
    if raised is not None and (recorder.attempt.varying is not None or _varies(input_sizes)):
        raise SizeVariesError(f"the program raises {type(raised).__name__}") from raised
    if _varies(input_sizes) and "int" in observer.class_readers:
        reason = "the function reads the class of a number that varies, which is not int"
        raise SizeVariesError(reason, location=observer.reads_class_of["int"])
    if input_sizes is not None and input_sizes.floats.any and "float" in observer.class_readers:
        raise input_sizes.floats.constants(observer.reads_class_of["float"])
    if recorder.has_traced_numbers and (raised is not None or readers):
        reason = "a number of the trace cannot replace a Python number here"
        raise RecordAgain(reason, guesses=CONSTANT_NUMBERS, typed=None)
    if observer.compares_bools is not None and _computes_bools(recorder):
        if recorder.attempt.guesses is None:
            raise DataDependentError(
                "a result of torch.equal or torch.allclose, which depends on values, may be compared by `is`",
                location=observer.compares_bools,
                advice=("use it as a condition: `if torch.equal(x, y)`, or compare it by `==`",),
            )
        if recorder.attempt.guesses.numbers:
            raise RecordAgain("a bool of the trace is neither True nor False", guesses=CONSTANT_NUMBERS)
    if _may_repeat_changes(recorder, observer):
        raise RecordAgain(_REPEATED, watches_functions=True)
    if observer.lost_number and not recorder.attempt.lost_number and not observer.consumed_python_rng():
        # a number over a symbol would be a constant; it is unlikely to happen twice
        raise RecordAgain("another thread replaced a symbol by a number", lost_number=True)
    if observer.replaced_builtins:
        raise replaces_builtins(observer.replaced_builtins)
    check_cached_functions(recorder, observer)
    check_buffers(recorder, observer)
    check_kernels(recorder, observer)
    communication().check(recorder, observer)
    check_arrays(recorder)
    return reconstruction, raised


def _readers_of_classes(recorder: Recorder, observer: Observer) -> list[dict[str, Any]]:
    """The global variables of code that can distinguish numbers of this recording from plain ones by ``type``."""
    input_sizes, readers = recorder.inputs.input_sizes, observer.class_readers
    wanted = {
        "int": _varies(input_sizes),
        "float": input_sizes is not None and input_sizes.floats.any,
    }
    return [
        namespace
        for name, namespaces in readers.items()
        if wanted[name] or recorder.has_traced_numbers
        for namespace in namespaces
    ]


def _replace_type(recorder: Recorder, namespaces: Sequence[dict[str, Any]]) -> None:
    """Raise `RecordAgain` if ``type`` can be replaced in code with these global variables, where it is not yet."""
    typed = recorder.attempt.typed
    if typed is None:
        return
    others = [
        namespace
        for namespace in namespaces
        if not any(namespace is known for known in typed) and conversions.may_replace_type(namespace)
    ]
    if others:
        distinct = {id(namespace): namespace for namespace in others}
        raise RecordAgain("type of a number of the trace", typed=(*typed, *distinct.values()), converting=None)


def _computes_bools(recorder: Recorder) -> bool:
    """Whether an op has returned a bool to the program: `torch.equal`, for example."""
    outputs = (proxy for op in recorder.trace.ops for proxy in op.outputs())
    return any(isinstance(proxy, NumberProxy) and proxy.python_type is bool for proxy in outputs)


def _may_repeat_changes(recorder: Recorder, observer: Observer) -> bool:
    """Whether changes of Python objects may be those of functions that are one op, whose inference repeats them."""
    return recorder.changed_before_functions or (recorder.calls_unwatched_functions and bool(observer.writes()))


def _ending(error: BaseException, recorder: Recorder, observer: Observer) -> BaseException:
    """The exception that ends a recording after ``error``: ``error`` itself, or a `RecordAgain`.

    Numbers of the trace in place of Python numbers, and repeated changes of Python objects, may be the cause of any
    exception.
    """
    if isinstance(error, RecordAgain | RunEagerly) or of_signal_handler(error) is not None:
        return error
    if observer.replaced_builtins:  # whatever Thunder or PyTorch did with them may be the cause
        return replaces_builtins(observer.replaced_builtins)
    if isinstance(error, ClassNeeded):
        typed, namespace = recorder.attempt.typed, error.namespace
        if (
            typed is not None
            and namespace is not None
            and not any(namespace is known for known in typed)
            and conversions.may_replace_type(namespace)
        ):
            return RecordAgain("type of a number of the trace", typed=(*typed, namespace), converting=None)
        input_sizes = recorder.inputs.input_sizes
        if input_sizes is not None and input_sizes.floats.any:
            return input_sizes.floats.constants(error.location)
        error = DataDependentError(
            "the program reads the class of a data-dependent number, which has none while the program is recorded",
            location=error.location,
            advice=("use isinstance(n, float)", "or convert the number first: float(n), int(n)"),
        )
    if isinstance(error, DataDependentError):
        reason = disabled_functions.why_not_evaluated(recorder)
        if reason is not None:
            return RunEagerly(reason)
    if recorder.attempt.converting and not isinstance(error, DataDependentError):
        return RecordAgain("int and float are classes", converting=None)
    if recorder.has_traced_numbers:
        reason = "a number of the trace may be the cause of an exception"
        return RecordAgain(reason, guesses=CONSTANT_NUMBERS, typed=None)
    if recorder.attempt.typed and not isinstance(error, DataDependentError):
        return RecordAgain("type is another class", typed=None)
    if _may_repeat_changes(recorder, observer):
        return RecordAgain(_REPEATED, watches_functions=True)
    return error


def _trace_of(recorder: Recorder, outputs: list[Proxy], raised: BaseException | None) -> Trace:
    if recorder.defined_sizes is not None:
        outputs += recorder.defined_sizes.proxies
    ops = tuple(recorder.trace.ops) if raised is None else _without_guesses(recorder.trace.ops)
    trace = Trace(
        "computation",
        tuple(recorder.inputs.proxies),
        disabled_functions.with_writes_as_recorded(ops, recorder.inputs.proxies),
        tuple(outputs),
        Stage.ACQUIRED,
        "acquisition",
        recorder.trace.ambient,
    )
    if recorder.inputs.input_sizes is not None:
        trace.check_sizes()
        recorder.inputs.check_sharing(trace.symbols, outputs)
    return trace


def _without_guesses(ops: Sequence[BoundSymbol]) -> tuple[BoundSymbol, ...]:
    """The ops without checks of values: a program that ends with an exception runs for this call only."""
    return tuple([op for op in ops if Tag.GUESS not in op.symbol.tags])


def _refused_by_fakes(error: Exception) -> UnsupportedError:
    return UnsupportedError(
        f"PyTorch needs values of tensors for a call that cannot be recorded: {str(error).partition(chr(10))[0]}",
        location=raising_location(error),
        advice=("do this outside of the compiled function, as torch.jit.trace and other compilers of PyTorch's",),
    )


@calls_program
def _run(
    function: Callable[..., Any],
    recorder: Recorder,
    observer: Observer,
    outputs: list[Proxy],
) -> tuple[Reconstruction, BaseException | None]:
    function = intercepted(function)
    previous = set_active_recorder(recorder)
    raised: BaseException | None = None
    try:
        with (
            only_kernels(recorder.trace.kernels),
            profiler_ranges.of_program(),
            intercepting(),
            recorder.tensors.fake_mode,
            AcquisitionMode(recorder, observer),
        ):
            result, raised = _observed(function, recorder, observer)
            communication().finish(recorder)
            recorder.inputs.created_objects.check()
            recorder.inputs.check_captured()
            changed = recorder.switches.left_changed()
        writes = observer.writes()
        reconstruction = Reconstructor(recorder, observer, outputs).reconstruction(result, writes, changed)
        recorder.wrapper_calls.finish(outputs)
        return (reconstruction, None) if raised is None else (raising(reconstruction, raised), raised)
    except AcquisitionError as error:
        if raised is None or error is raised:
            raise
        note(raised, str(error.problem))
    finally:
        recorder.switches.undo()
        set_active_recorder(previous)
    raise raised


@calls_program
def _observed(function: Callable[..., Any], recorder: Recorder, observer: Observer) -> tuple[Any, BaseException | None]:
    """Run the program under the observer; returns its result, or the contents of an exception and the exception."""
    sizes = recorder.inputs.input_sizes
    watched = nullcontext() if sizes is None else sizes.sizes.watched_by(observer)
    with conversions.placed(recorder.attempt.converting or (), recorder.attempt.typed or ()), observer, watched:
        try:
            return observer.run(function), None
        except data_dependence.EXCEPTIONS as error:
            raise _refused_by_fakes(error) from error
        except EndsRecording:
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                note_module(error)
            subclasses.explain(error)
            if not ends_program(error, recorder.trace):
                raise
            return contents(error), error
