"""Acquisition: run the user's program once and write it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from thunder_core.acquire import cached_results, collectives, data_dependence, escaped, leaks, module_calls, subclasses
from thunder_core.acquire.active import set_active_recorder
from thunder_core.acquire.attempt import Attempt, Guesses, key_of, why_constant
from thunder_core.acquire.eager_modules import module_to_blame
from thunder_core.acquire.input_numbers import ConstantNeeded
from thunder_core.acquire.input_sizes import InputSizes, VaryingSizes
from thunder_core.acquire.interceptions import intercepted, intercepting, stand_in_of
from thunder_core.acquire.mode import AcquisitionMode, length
from thunder_core.acquire.optimizer_updates import update_to_blame
from thunder_core.acquire.raised import contents, ends_program, note, raising
from thunder_core.acquire.reconstruction import Reconstruction, Reconstructor
from thunder_core.acquire.recorder import GraphNeeded, Recorder
from thunder_core.acquire.resolvers import RESOLVERS
from thunder_core.acquire.speculation import check_arrays
from thunder_core.acquire.traced_number import ClassNeeded, NumbersNeeded
from thunder_core.acquire.wrapper_derivatives import record_derivatives
from thunder_core.errors import AcquisitionError, DataDependentError, SizeVariesError, UnsupportedError, recording
from thunder_core.guards.guard import Guard
from thunder_core.guards.observer import Observer
from thunder_core.guards.shared_memory import base_of, is_recorded
from thunder_core.guards.source import Source
from thunder_core.guards.stand_ins import recording_turn
from thunder_core.guards.torch_generators import TorchGenerators
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import only_kernels
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import NumberProxy, Proxy
from thunder_core.ir.size import as_found
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass, tensor_identity
from thunder_core.tracing.sizes import Sizes, compiling_with
from thunder_core.tracing.user_frames import calls_program, raising_location


@dataclass(frozen=True)
class Acquired:
    """A recorded program.

    Attributes:
        trace: the program; its output is the flat tuple of tensors that ``reconstruction`` asks for.
        sources: where the prologue finds each input of the trace.
        inputs: the objects that they were this time.
        observer: what was read from Python, and what was written.
        reconstruction: how to rebuild the program's result, and its writes to Python objects, from the outputs.
        raised: the exception with which the program ends instead of a result; the reconstruction raises it.
        input_sizes: the inputs with sizes that vary between calls, and the symbols; None where all are constants.
        constant_sizes: why sizes that were to vary are constants; empty otherwise.
        constant_floats: the paths of floats that were to vary and are constants, each with the line that needs it.
        number_guards: what has to hold of ints that were to vary and are constants, beside what the observer saw.
        keeps_numbers: numbers that the program reads from tensors are numbers of the trace.
        defined: the symbols for sizes that lines of the program define. Its last outputs are what they are.
        saw_strides: the program asked for strides, so that they matter even where they do not decide what is read.
        random_states: random generators outside of PyTorch that the program consumed.
        guarded: who calls the program has checked whatever it read, and the metadata of its inputs, before each call,
            as Dynamo does. Which inputs share memory is checked all the same where the program writes to them.
    """

    trace: Trace
    sources: tuple[Source, ...]
    inputs: tuple[Any, ...]
    observer: Observer
    reconstruction: Reconstruction
    random_states: tuple[str, ...]
    saw_strides: bool
    raised: Exception | None = None
    guarded: bool = False
    input_sizes: InputSizes | None = None
    constant_sizes: str = ""
    constant_floats: Mapping[str, SourceLocation | None] = field(default_factory=dict)
    number_guards: tuple[Guard, ...] = ()
    keeps_numbers: bool = True
    defined: tuple[str, ...] = ()

    @property
    def sizes(self) -> Sizes | None:
        """The symbols of sizes that vary; None where all sizes are constants."""
        return None if self.input_sizes is None else self.input_sizes.sizes

    @property
    def varying_floats(self) -> list[str]:
        """Where floats are read that vary between calls."""
        pairs = zip(self.trace.inputs, self.sources, strict=True)
        return [source.describe() for proxy, source in pairs if isinstance(proxy, NumberProxy)]

    @property
    def defined_outputs(self) -> dict[str, int]:
        """The symbols that lines define, each with its place among the outputs."""
        places = {proxy.name: place for place, proxy in enumerate(self.trace.output)}
        return {name: places[name] for name in self.defined}

    def with_sizes_as_found(self) -> Acquired:
        """The same program with sizes by all that was found out about them while it was recorded."""
        if self.sizes is None or not self.sizes.fact_count:
            return self
        return replace(self, trace=self.trace.with_sizes(as_found, checks=False))

    def with_constant_sizes(self, reason: str) -> Acquired:
        """The same program for the sizes that it was recorded with alone."""
        assert self.input_sizes is not None
        trace = self.trace.with_constant_sizes()
        numbers = self.input_sizes.number_guards()
        return replace(self, trace=trace, input_sizes=None, constant_sizes=reason, number_guards=numbers)

    @property
    def leaves(self) -> frozenset[str]:
        """Names of the inputs that require grad and are leaves of the autograd graph, as parameters are."""
        pairs = zip(self.trace.inputs, self.inputs, strict=True)
        return frozenset(p.name for p, v in pairs if isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf)

    @property
    def has_subclasses(self) -> bool:
        """Whether inputs are of classes that PyTorch hands calls to. What these made of the calls is in the trace."""
        kinds = {type(value) for value in self.inputs if isinstance(value, torch.Tensor)}
        return any(map(subclasses.has_torch_function, kinds))

    @property
    def families(self) -> tuple[frozenset[str], ...]:
        """Names of the inputs that autograd takes for views of one tensor, where there are several."""
        names: dict[int, list[str]] = {}
        for proxy, value in zip(self.trace.inputs, self.inputs, strict=True):
            if isinstance(value, torch.Tensor) and is_recorded(value):
                names.setdefault(tensor_identity(base_of(value)), []).append(proxy.name)
        return tuple(frozenset(found) for found in names.values() if len(found) > 1)


def acquire(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    varying: VaryingSizes | None = None,
    guesses: Guesses | None = None,
    *,
    defines_sizes: bool = True,
) -> Acquired:
    """Run ``function(*args, **kwargs)`` once without computing anything, and return it as a trace.

    The program's changes to Python objects are undone afterwards; they are part of what was recorded.

    Args:
        varying: which sizes of inputs become symbols. Where that fails the program is recorded again with constants.
        guesses: values of tensors that the program's Python reads, as far as they are known. It is recorded with them,
            then with those of this call, and with lines that raise `thunder_core.errors.WrongGuess` where a run has
            others. None: a program that reads values is refused.
        defines_sizes: whether sizes that values decide may be symbols. Where that fails they are constants.

    Raises:
        AcquisitionError: the program cannot be recorded; the message names the user's line.
        EagerCallNeeded: the program has lazy modules that only its first call, by eager PyTorch, can initialize; it
            returns or stores a module or a Parameter that it makes; or it calls functions of ``functools.lru_cache``
            with tensors.
        Exception: whatever recording itself raises. An exception of the program's is its end, and recorded as such.
    """
    module_calls.generate_code(function)
    known = guesses if guesses is not None and guesses.values else None
    attempt = Attempt(varying=varying, guesses=known, defines_sizes=defines_sizes)
    first: Exception | None = None
    advanced: list[str] = []
    while True:
        _check_repeatable(advanced)
        try:
            with recording_turn():
                return _attempt(function, args, kwargs, attempt, advanced)
        except GraphNeeded:
            attempt = replace(attempt, graph=True)
        except ConstantNeeded as error:
            assert attempt.varying is not None
            needed = {source.describe(): location for source, location in error.needed.items()}
            attempt = replace(
                attempt,
                varying=attempt.varying.with_constants(error.needed),
                constant_floats={**needed, **attempt.constant_floats},
            )
        except NumbersNeeded:
            attempt = replace(attempt, guesses=Guesses(numbers=False))
        except module_calls.Uninitialized as needed:
            module_calls.initialize(needed)
        except module_calls.PreparationNeeded as needed:
            needed.prepare()
        except Exception as error:
            following = _following(attempt, error, function, guesses)
            if following is None and attempt.defines_sizes and attempt.guesses is not None:
                following, first = _without_symbols(attempt, error, guesses), None
            if following is None and attempt.varying is not None:
                following, first = _with_constants(attempt, error, guesses), None
            if following is None:
                if first is None:
                    raise
                raise first from None
            if following.eager_modules != attempt.eager_modules:
                first = first or error
            attempt = following


def _following(
    attempt: Attempt, error: Exception, function: Callable[..., Any], guesses: Guesses | None
) -> Attempt | None:
    """Another way to record a program that depends on values; None where the error tells of none.

    Args:
        guesses: as of `acquire`.
    """
    if not isinstance(error, DataDependentError | UnsupportedError):
        return None
    update = update_to_blame(error, attempt.eager_updates)
    if update is not None:
        return replace(attempt, eager_updates=attempt.eager_updates | {update})
    if isinstance(error, UnsupportedError) and not isinstance(error.__cause__, data_dependence.MetadataUnknown):
        return None
    module = module_to_blame(error, function, attempt.eager_modules)
    if module is not None:
        return replace(attempt, eager_modules=attempt.eager_modules | {key_of(module)})
    if attempt.guesses is None and guesses is not None:
        return replace(attempt, graph=False, eager_modules=frozenset(), eager_updates=frozenset(), guesses=guesses)
    return None


def _without_symbols(attempt: Attempt, error: Exception, guesses: Guesses | None) -> Attempt:
    """After an attempt with symbols for the sizes that values decide, which ended with an error: one in which PyTorch
    may ask what these are, or one with constants.
    """
    if attempt.general:
        return replace(attempt, general=False, guesses=guesses)
    reason = "" if attempt.varying is not None else why_constant(error)
    return replace(attempt, defines_sizes=False, guesses=guesses, constant_sizes=reason)


def _with_constants(attempt: Attempt, error: Exception, guesses: Guesses | None) -> Attempt:
    """An attempt with constant sizes, after one with symbols that ended with an error."""
    values = None if attempt.guesses is None else guesses
    return replace(attempt, varying=None, constant_sizes=why_constant(error), guesses=values)


def _attempt(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attempt: Attempt,
    advanced: list[str],
) -> Acquired:
    """One recording; one that has to be repeated adds the names of what cannot be taken back to ``advanced``."""
    defines = attempt.defines_sizes and attempt.guesses is not None
    sizes = Sizes(general=defines and attempt.general) if defines or attempt.varying is not None else None
    input_sizes = None if sizes is None else InputSizes(attempt.varying or VaryingSizes(), sizes)
    with compiling_with(None if input_sizes is None else input_sizes.sizes):
        if input_sizes is None:
            observer = Observer(function, args, kwargs, stand_in_of)
        else:
            numbers = attempt.varying.wanted_numbers() if attempt.varying is not None else []
            answers = {"len": length}
            observer = Observer(function, args, kwargs, stand_in_of, numbers, input_sizes.number, answers)
        return _recorded(function, attempt, advanced, observer, input_sizes)


def _recorded(
    function: Callable[..., Any],
    attempt: Attempt,
    advanced: list[str],
    observer: Observer,
    input_sizes: InputSizes | None,
) -> Acquired:
    recorder = Recorder(
        observer.source_of,
        RESOLVERS,
        escaped.record,
        attempt,
        closure_of=observer.closure_of,
        generators=observer.generators,
        input_sizes=input_sizes,
    )
    try:
        if input_sizes is not None:
            input_sizes.floats.bind(recorder)
        outputs: list[Proxy] = []
        try:
            with recording():
                reconstruction, raised = _run(function, recorder, observer, outputs)
            varies = input_sizes is not None and bool(input_sizes.inputs or input_sizes.sizes.defined)
            if raised is not None and input_sizes is not None and (attempt.varying is not None or varies):
                raise SizeVariesError(f"the program raises {type(raised).__name__}") from raised
            if varies and "int" in observer.tells:
                reason = "the function asks for classes, of which a number that varies has another than int"
                raise SizeVariesError(reason, location=observer.tells["int"])
            if input_sizes is not None and input_sizes.floats.any and "float" in observer.tells:
                raise input_sizes.floats.constants(observer.tells["float"])
            if recorder.keeps_numbers and (raised is not None or observer.tells):
                raise NumbersNeeded
            cached_results.check(observer)
            check_arrays(recorder)
            random_states = tuple(observer.consumed_python_rng())
            _check_generators(observer.generators)
        except (ConstantNeeded, GraphNeeded, NumbersNeeded, module_calls.Uninitialized, module_calls.PreparationNeeded):
            advanced += observer.rewind()
            raise
        except ClassNeeded as error:
            advanced += observer.rewind()
            if input_sizes is not None and input_sizes.floats.any:
                raise input_sizes.floats.constants(error.location) from None
            if recorder.keeps_numbers:
                raise NumbersNeeded from None
            raise DataDependentError("the class of a number depends on values", location=error.location) from None
        except Exception as error:
            repeats = isinstance(error, DataDependentError | UnsupportedError) or input_sizes is not None
            if repeats or recorder.keeps_numbers:
                advanced += observer.rewind()
            if recorder.keeps_numbers:
                raise NumbersNeeded from error
            raise
        finally:
            observer.undo()
        if raised is None:  # the frames of an exception hold what they hold
            recorder.inputs.made_objects.close()  # it holds functions over tensors of the program
            leaks.check(recorder.tensors)
        if recorder.defined_sizes is not None:
            outputs += recorder.defined_sizes.proxies
        trace = Trace(
            "computation",
            tuple(recorder.inputs.proxies),
            tuple(recorder.trace.lines) if raised is None else without_guesses(recorder.trace.lines),
            tuple(outputs),
            Stage.ACQUIRED,
            "acquisition",
            recorder.trace.ambient,
        )
        if input_sizes is not None:
            trace.check_sizes()
            recorder.inputs.check_sharing(trace.symbols, outputs)
        sources, objects = tuple(recorder.inputs.sources), tuple(recorder.inputs.objects)
    finally:
        recorder.close()
    if raised is None:
        _check_made(observer.generators)
    varies = input_sizes is not None and bool(input_sizes.inputs or input_sizes.sizes.defined)
    return Acquired(
        trace,
        sources,
        objects,
        observer,
        reconstruction,
        random_states,
        recorder.saw_strides,
        raised,
        input_sizes=input_sizes if varies else None,
        constant_sizes=attempt.constant_sizes,
        constant_floats=attempt.constant_floats,
        keeps_numbers=attempt.guesses is None or attempt.guesses.numbers,
        defined=() if input_sizes is None else tuple(input_sizes.sizes.defined),
    )


def without_guesses(lines: Sequence[BoundSymbol]) -> tuple[BoundSymbol, ...]:
    """The lines without checks of values: a program that ends with an exception runs for this call only."""
    return tuple([line for line in lines if Tag.GUESS not in line.symbol.tags])


def _check_repeatable(advanced: list[str]) -> None:
    if advanced:
        raise UnsupportedError(
            f"the program has to be recorded a second time, and {', '.join(advanced)} has advanced in the first",
            advice=(
                "take values from iterators and files outside of the compiled function, and pass them as arguments",
                "a second recording is needed for gradients that the program computes itself, for lazy modules and for "
                "submodules that depend on values",
            ),
        )


def _check_generators(generators: TorchGenerators) -> None:
    moved = generators.moved()
    if moved:
        raise UnsupportedError(
            f"the program changes the state of {', '.join(moved)}, or reads its seed, by a call that is not recorded: "
            "it would happen once, at compile time",
            advice=(
                "call torch.manual_seed and torch.set_rng_state for the default generator",
                "seed other generators outside of the compiled function",
            ),
        )


def _check_made(generators: TorchGenerators) -> None:
    """Each call of the program makes the generators that it makes, so nothing may hold those of the recording."""
    if generators.outliving():
        raise UnsupportedError(
            "the program seeds or uses a random generator that no path of Python leads to, or leaves one that it makes "
            "where it cannot be found",
            advice=(
                "pass the generator as an argument, or hold it in an attribute or a variable that the program reads",
            ),
        )


def _refused_by_fakes(error: Exception) -> UnsupportedError:
    return UnsupportedError(
        f"PyTorch needs values of tensors for what cannot be recorded: {str(error).partition(chr(10))[0]}",
        location=raising_location(error),
        advice=("do this outside of the compiled function, as torch.jit.trace and other compilers of PyTorch's",),
    )


@calls_program
def _run(
    function: Callable[..., Any],
    recorder: Recorder,
    observer: Observer,
    outputs: list[Proxy],
) -> tuple[Reconstruction, Exception | None]:
    function = intercepted(function)
    previous = set_active_recorder(recorder)
    result: Any = None
    raised: Exception | None = None
    try:
        with (
            only_kernels(recorder.trace.kernels),
            intercepting(),
            recorder.tensors.fake_mode,
            AcquisitionMode(recorder, observer),
        ):
            with observer:
                try:
                    if recorder.inputs.input_sizes is not None:
                        recorder.inputs.input_sizes.sizes.watcher = observer
                    result = observer.run(function)
                except data_dependence.EXCEPTIONS as error:
                    raise _refused_by_fakes(error) from error
                except Exception as error:
                    subclasses.explain(error)
                    if not ends_program(error, recorder.trace):
                        raise
                    result, raised = contents(error), error
                finally:
                    if recorder.inputs.input_sizes is not None:
                        recorder.inputs.input_sizes.sizes.watcher = None
            collectives.finish(recorder)
            recorder.inputs.made_objects.check()
            recorder.inputs.check_captured()
            changed = recorder.switches.left_changed()
        writes = observer.writes()
        reconstruction = Reconstructor(recorder.inputs, observer, outputs).reconstruction(result, writes, changed)
        if recorder.differentiable_calls:
            with intercepting(), recorder.tensors.fake_mode, DisableTorchFunctionSubclass():
                record_derivatives(recorder, observer, outputs)
        return (reconstruction, None) if raised is None else (raising(reconstruction, raised), raised)
    except AcquisitionError as error:
        if raised is None or error is raised:
            raise
        note(raised, str(error.problem))
    finally:
        recorder.switches.undo()
        set_active_recorder(previous)
    raise raised
