"""The recorder, which appends each torch call of the running program to a trace."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from types import CellType, FrameType
from typing import Any, Final

import torch
from torch.random import fork_rng

from thunder_core.errors import RunEagerly, SizeVariesError, ThunderError
from thunder_core.ir.size import are_constant
from thunder_core.ir.symbol import Symbol, Tag, as_recorded
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_errata import check_after_inference
from thunder_core.pytorch_internals import (
    is_zerotensor,
    len_torch_function_stack,
    peek_interpreter_stack,
    size_settings,
)
from thunder_core.symbols.opaque import called_name, is_of_pytorch
from thunder_core.symbols.python_kernels import python_derivative, python_kernels
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import ObservingFakeMode
from thunder_core.tracing.frames import calls_program, is_of_thunder, user_location
from thunder_core.tracing.outcome import Outcome, Result, WrapperResultError, infer
from thunder_core.tracing.signal_handlers import of_signal_handler
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.observe.outside_code import outside_code
from thunder_frontend.observe.torch_generators import TorchGenerators
from thunder_frontend.observe.writes import Write, same_writes
from thunder_frontend.record import data_dependence, result_sizes
from thunder_frontend.record.arguments import CallArguments, check_layouts
from thunder_frontend.record.attempt import Attempt, RecordAgain
from thunder_frontend.record.backward_code import BackwardCode
from thunder_frontend.record.communication import check_channels
from thunder_frontend.record.data_dependence import Resolved, Resolver, ValueRequest
from thunder_frontend.record.inferred_calls import InferredCalls
from thunder_frontend.record.input_sizes import InputSizes
from thunder_frontend.record.inputs import Inputs
from thunder_frontend.record.op_writer import OpWriter, is_reshaped, reshape
from thunder_frontend.record.open_trace import OpenTrace, is_random
from thunder_frontend.record.prefix import Prefix
from thunder_frontend.record.result_sizes import DefinedSizes
from thunder_frontend.record.switch_changes import SwitchChanges
from thunder_frontend.record.tensor_classes import RefusedCalls, WrapperCalls
from thunder_frontend.record.tensors import Suspension, Tensors
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_tensor import Variable
from thunder_frontend.record.watched_float import watched

_MAY_WRITE: Final = frozenset({Tag.OPAQUE, Tag.CHANGES_AUTOGRAD, Tag.RUNS_AUTOGRAD})
_FLOATS: Final = (float,)
"""Types of numbers of the trace that such functions accept: metadata of results does not depend on their values."""
_WITH_FLOATS: Final = frozenset({Tag.ELEMENTWISE, Tag.TAKES_FLOATS})


class Recorder:
    """Records calls as ops; equal calls are inferred once.

    Args:
        source_of: returns the access path of an object; None for an object without one.
        resolvers: resolve calls that need values, in order.
        record_aten: records a call of an ATen operator that did not pass the torch-function mode.
        closure_of: returns the path to a closure variable by its cell; None for functions that the program creates.
        generators: PyTorch's random generators that the program reaches.
        input_sizes: creates symbols for sizes of inputs that vary between calls; None where all sizes are constants.

    Attributes:
        attempt: the options of this recording.
        trace: the trace recorded so far.
        inputs: the real tensors and other objects that the program has used, as inputs of the trace.
        tensors: the tensor objects of the program, with their proxies and fakes.
        writer: appends ops and returns their results as traced tensors.
        suspension: the context in which the recorder itself calls PyTorch; such calls are not recorded.
        switches: PyTorch's switches that the program changes.
        prefix: runs the ops so far, for values that the program reads.
        defined_sizes: the sizes that ops of the program define; None where these are constants.
        saw_strides: whether the program read strides.
        mode: the torch-function mode that passes calls to the recorder.
        calls_unwatched_functions: whether the program has called a function, not of PyTorch, that is one op of the
            trace, without `Attempt.watches_functions`.
        changed_before_functions: whether objects of the program were changed when it called such a function.
        backward_code: the functions of the program that backward calls.
        kernels: the Python kernels of operators.
        applied: the autograd.Function that PyTorch currently applies to wrappers.
        after_calls: functions to call after the current call of a module that a plugin records, even if it raises.
        notes: data of interceptions for this recording, by keys that they choose.
        wrapper_calls: records calls with wrapper subclasses; set before the program runs.
    """

    def __init__(
        self,
        source_of: Callable[[Any], Any],
        resolvers: tuple[Resolver, ...],
        record_aten: Callable[[Recorder, Any, tuple[type, ...], tuple[Any, ...], dict[str, Any]], Any],
        attempt: Attempt,
        *,
        closure_of: Callable[[CellType], Any] = lambda _: None,
        generators: TorchGenerators | None = None,
        input_sizes: InputSizes | None = None,
    ) -> None:
        fake_mode = ObservingFakeMode(partial(record_aten, self), self._check_outside_write)
        self.attempt = attempt
        self.trace = OpenTrace()
        self.suspension = Suspension()
        self.inputs = Inputs(self.trace, fake_mode, generators or TorchGenerators(), source_of, closure_of, input_sizes)
        self.tensors = Tensors(self.trace, self.inputs, fake_mode, self.suspension)
        self.writer = OpWriter(self.trace, self.inputs, self.tensors)
        self.switches = SwitchChanges()
        self.prefix = Prefix(self.trace, self.inputs, self.tensors, self.switches, self.changes_of_objects)
        self.defined_sizes: DefinedSizes | None = None
        if input_sizes is not None and attempt.has_data_dependent_sizes:
            self.defined_sizes = DefinedSizes(input_sizes.sizes, self.trace)
        self.saw_strides = False
        self.mode: Any = None
        self.calls_unwatched_functions = False
        self.changed_before_functions = False
        self.backward_code: list[BackwardCode] = []
        self.kernels: dict[Symbol, tuple[Callable[..., Any], ...]] = {}
        self.applied: Any = None
        self.after_calls: list[Callable[[], None]] = []
        self.notes: dict[Any, Any] = {}
        self.wrapper_calls: WrapperCalls = RefusedCalls()
        self._resolvers = resolvers
        shares = input_sizes is None and not attempt.graph and not len_torch_function_stack()
        self._inferred = InferredCalls(self.trace.kernels if shares else None)

    def close(self) -> None:
        """Release the user's objects now, rather than when reference cycles are collected."""
        self.tensors.close()
        self.tensors.fake_mode.on_escape = self.tensors.fake_mode.on_outside_write = None
        self.inputs.close()
        self.prefix.close()
        self.backward_code.clear()
        self.kernels.clear()
        self.after_calls.clear()
        self.notes.clear()
        self.wrapper_calls = RefusedCalls()
        self.mode = None

    @property
    def definable_sizes(self) -> DefinedSizes | None:
        """`defined_sizes`; None where ops must not define sizes, for example in a region."""
        return self.defined_sizes if self.defined_sizes is not None and self.defined_sizes.allowed else None

    @property
    def has_traced_numbers(self) -> bool:
        """Whether the program has received numbers of the trace in place of Python numbers."""
        guesses = self.attempt.guesses
        return guesses is not None and guesses.numbers and bool(self.tensors.numbers)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call. Returns its result, with traced tensors in place of tensors."""
        if self.tensors.numbers:
            args, kwargs = map_leaves(_as_size, (args, kwargs))
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        return self.call_symbol(symbol, args, kwargs)

    def convert(self, name: str, frame: FrameType | None) -> None:
        """The code of a frame calls ``int`` or ``float`` of a number of the trace, or one of its callers does.

        Raises:
            RecordAgain: in the next recording it calls a class that needs no value.
        """
        known = self.attempt.converting
        if known is None or self.mode is None:
            return
        while frame is not None and (name not in frame.f_code.co_names or is_of_thunder(frame.f_code)):
            frame = frame.f_back
        if frame is None or name in frame.f_globals or frame.f_builtins.get(name) is not getattr(builtins, name):
            return
        if self.mode.observer.consumed_python_rng():  # an iterator or a file may have advanced
            return
        raise RecordAgain(f"{name} of a number of the trace", converting=(*known, frame.f_globals))

    def call_symbol(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As `call`, for a canonical symbol with canonical arguments."""
        outermost = not self.suspension.active
        with self.suspension:
            if outermost:
                self.switches.follow(self.trace)
            if is_of_pytorch(symbol):
                return self._call(symbol, args, kwargs)
            return self._call_other(symbol, args, kwargs)

    def _call_other(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a function that is not PyTorch's. Inferring its results runs it, maybe several times.

        Raises:
            RunEagerly: the function changes Python objects, or takes random numbers or items of an iterator: each
                run of its op does so, and the compiled program would repeat the changes. Or it reads an object that
                the program has changed before.
        """
        watches = self.attempt.watches_functions
        self.calls_unwatched_functions |= not watches
        if not watches and self.mode is not None and (Tag.LOCAL in symbol.tags or python_kernels(symbol.target) != ()):
            self.changed_before_functions |= self.mode.observer.has_changes()
        before = self.changes_of_objects() if watches else None
        hidden = None if self.mode is None else self.mode.observer.hidden_states
        states = {} if hidden is None else hidden.states()
        observed = self.mode.observer.noting_code() if watches and self.mode is not None else nullcontext([])
        try:
            with observed as code:
                result = self._call(symbol, args, kwargs)
        except Exception:
            self._check_unchanged(before, symbol)
            raise
        self._check_unchanged(before, symbol)
        self._check_kernels(symbol, before)
        if before and self.mode is not None:
            changed = self.mode.observer.change_read_by(code)
            if changed is not None:  # the changes are made when the program ends, after all of its ops
                raise _not_one_op(symbol, f"may read {changed.describe()}, which the program has changed before")
        advanced = [] if hidden is None else hidden.changed_since(states)
        if advanced:
            raise _not_one_op(symbol, f"takes values from {advanced[0]}")
        return result

    def _check_kernels(self, symbol: Symbol, before: tuple[Write, ...] | None) -> None:
        """Check that a Python kernel of an operator reads nothing that the program has changed before.

        Raises:
            RunEagerly: it may do so.
        """
        if self.mode is None:
            return
        derivative = python_derivative(symbol.target)
        if derivative is not None:
            self.backward_code.append(BackwardCode.of_derivative(derivative))
        kernels = python_kernels(symbol.target)
        if kernels:
            self.kernels[symbol] = kernels
        if not before or kernels == ():
            return
        seen = before[0].target if kernels is None else self.mode.observer.change_seen_by(outside_code(kernels))
        if seen is not None:
            kernel = f"{symbol.name}, whose kernel is a function of Python,"
            raise RunEagerly(f"{kernel} may read {seen.describe()}, which the program has changed before")

    def _check_unchanged(self, before: tuple[Write, ...] | None, symbol: Symbol) -> None:
        if before is not None and not same_writes(self.changes_of_objects(), before):
            raise _not_one_op(symbol, "changes Python objects")

    def _check_outside_write(self, tensor: torch.Tensor) -> None:
        """A function that is one op of the trace writes to a real tensor, which is not its argument."""
        if self.inputs.has_path(tensor):
            raise RunEagerly("a function that is one op of the trace writes to a tensor that is not its argument")

    def changes_of_objects(self) -> tuple[Write, ...]:
        """The program's changes of Python objects so far, to be compared with later ones by `same_writes`."""
        return () if self.mode is None else tuple(self.mode.observer.writes())

    def _call(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        numbers = () if _WITH_FLOATS.isdisjoint(symbol.tags) else _FLOATS
        call = CallArguments(self.inputs, args, kwargs, runs_python=Tag.LOCAL in symbol.tags, numbers=numbers)
        if Tag.RUNS_AUTOGRAD in symbol.tags:
            self._check_backward(symbol)
        context = self.trace.context_of(symbol)
        key = (symbol, context, torch.get_default_dtype(), len_torch_function_stack(), *call.key)
        written = self.trace.storages.written
        if written:
            # a write to another tensor with the same history may have changed it, even before the first use of this one
            variables = [variable for variable in call.variables if variable.proxy.storage in written]
            key = (*key, *[bool(self.tensors.fake(variable).requires_grad) for variable in variables])
        fakes: list[Any] = []
        outcome = None
        watched = self.attempt.watches_functions and not is_of_pytorch(symbol)
        if call.hashable and not self.attempt.graph and not watched:
            outcome = self._inferred.find(key, symbol, call, self.switches.latest)
        if outcome is None:
            if symbol.functional is not None or not _MAY_WRITE.isdisjoint(symbol.tags) or "out" in kwargs:
                self.tensors.create_fakes_of_views(call.variables)
            try:
                outcome, fakes = self.infer(symbol, args, kwargs, call.variables)
            except data_dependence.EXCEPTIONS as error:
                return self.resolve(ValueRequest(symbol, args, kwargs, call, error))
            if not self._holds_for_all_sizes(symbol, call, outcome):
                outcome, fakes = self._inferred_with_facts(symbol, args, kwargs, call, outcome)
            check_channels(symbol, outcome.channels)
            if _is_zero(outcome, fakes):
                return self._zeros(outcome.results[0], fakes[0])
            uses_autograd = Tag.CHANGES_AUTOGRAD in symbol.tags or Tag.READS_AUTOGRAD in symbol.tags
            if outcome.cacheable and call.hashable and not uses_autograd:
                self._inferred.add(key, symbol, call, self.switches.latest, outcome)
        if any(result.same_as >= 0 and is_reshaped(result, call) for result in outcome.results):
            value = reshape(self, symbol, args, kwargs, call, outcome)
            if value is not NotImplemented:
                return value
            symbol = as_recorded(symbol)
        if Tag.LOCAL in symbol.tags and _is_written_behind_autograd(outcome):
            symbol = as_recorded(symbol)
        return self.writer.record(symbol, call, outcome, fakes, context)

    def _check_backward(self, symbol: Symbol) -> None:
        """Check that a call of autograd can be recorded.

        Raises:
            RecordAgain: the fake tensors have no autograd graph.
            RunEagerly: it would call a function that changes a container of the program, or that may read or
                change objects of the program.
        """
        if not self.attempt.graph:
            raise RecordAgain(f"{symbol.name} runs autograd, and the fake tensors have no graph", graph=True)
        containers = self.inputs.created_objects.containers
        if containers:  # hooks do not run while the program is recorded, which would continue without their changes
            kind = type(containers[0][0]).__name__
            raise RunEagerly(f"{symbol.name} would call a function that uses a {kind} which the program creates")
        changes = self.changes_of_objects() if self.backward_code else ()
        for code in self.backward_code:
            calls = f"{symbol.name} calls {code.name}, which may"
            if changes:  # they are made when the program ends
                raise RunEagerly(f"{calls} read {changes[0].target.describe()}, which the program has changed")
            if code.may_change_objects:
                raise RunEagerly(f"{calls} change objects that the program reads")

    def _holds_for_all_sizes(self, symbol: Symbol, call: CallArguments, outcome: Outcome) -> bool:
        """Whether the outcome of a call is also valid if sizes that ops define are 0 or 1."""
        sizes = None if self.defined_sizes is None else self.defined_sizes.sizes
        if sizes is None or not sizes.general or not sizes.defined:
            return True
        return result_sizes.holds(sizes, self.tensors.fake_mode, symbol, call, outcome)

    def _inferred_with_facts(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: CallArguments, outcome: Outcome
    ) -> tuple[Outcome, list[Any]]:
        """As `infer`, for a call whose outcome differs for sizes 0 and 1: records facts that exclude these.

        Raises:
            SizeVariesError: the call cannot be inferred again, because it has written to the fakes.
        """
        if outcome.written:
            raise SizeVariesError(f"{symbol.name} differs for sizes 0 and 1", location=user_location())
        with size_settings.patch(backed_size_oblivious=False):
            return self.infer(symbol, args, kwargs, call.variables)

    def _zeros(self, result: Result, fake: Any) -> Any:
        """Dense zeros in place of a zero tensor of PyTorch, whose missing storage kernels of executors cannot read.

        Forward-mode differentiation creates zero tensors. A product with one is a zero tensor too.
        """
        zeros = self.call(torch.zeros, (result.shape,), {"dtype": result.dtype, "device": result.device})
        variable = self.tensors.variable(zeros)
        variable.fake, variable.key = fake, (*variable.key, "zero tensor")
        return zeros

    def resolve(self, request: ValueRequest) -> Any:
        """The result of a call that needs values, from the first resolver that resolves it.

        Raises:
            AcquisitionError: no resolver resolves it. The cause of the error has a note for each resolver.
        """
        reasons: list[str] = []
        for resolver in self._resolvers:
            reply = resolver.resolve(self, request)
            if isinstance(reply, Resolved):
                return reply.result
            request.cause.add_note(f"{type(resolver).__name__}: {reply.reason}")
            reasons += [reply.reason] if reply.blocking else []
        variables = request.call.variables
        random = request.reads and is_random(
            self.trace.all_ops(), self.inputs.proxies, {variable.proxy.storage for variable in variables}
        )
        raise data_dependence.error(
            request.symbol, variables, user_location(), request.cause, random=random, reasons=reasons
        ) from request.cause

    @calls_program
    def infer(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], variables: Iterable[Variable]
    ) -> tuple[Outcome, list[Any]]:
        """Run a call on fakes. Returns its outcome, and the fake of each result.

        Args:
            variables: the variables of tensor arguments: a result may be one of them, or share its storage.

        Raises:
            data_dependence.EXCEPTIONS: the result needs values, or PyTorch cannot infer it without running the call.
            ThunderError: the call cannot be recorded, or Thunder has a defect (`InternalError`).
            Exception: the exception that eager raises for the call.
        """
        # read here, because leaving inference mode enables gradients
        grad_enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        with self.tensors.fake_mode.observing() as observed, torch.inference_mode(False):
            if Tag.LOCAL in symbol.tags:
                args, kwargs = map_leaves(watched, (args, kwargs))
            fake_args, fake_kwargs = self.tensors.fakes(args), self.tensors.fakes(kwargs)
            arguments = [self.tensors.fake(variable) for variable in variables]
            with torch.set_grad_enabled(grad_enabled):
                # a function of the user may seed the generators, which must happen only when the program runs
                generators = fork_rng(devices=[]) if Tag.LOCAL in symbol.tags else nullcontext()
                runs_autograd = Tag.RUNS_AUTOGRAD in symbol.tags
                thread = self.switches.autograd_in_this_thread() if runs_autograd else nullcontext()
                try:
                    with generators, thread:
                        outcome = infer(symbol.target, fake_args, fake_kwargs, arguments, observed)
                    check_after_inference(symbol.target, fake_args, fake_kwargs)
                    check_layouts(symbol.name, [result.layout for result in outcome[0].results])
                    return outcome
                except (*data_dependence.EXCEPTIONS, WrapperResultError, ThunderError):
                    raise
                except Exception as error:  # of the call: kernels and the user's code may raise any
                    if of_signal_handler(error) is not None:
                        raise
                    if Tag.LOCAL in symbol.tags:  # a user's function, whose calls are not in the trace
                        self.trace.is_region_cut = True
                    raise data_dependence.as_eager_raises(symbol, fake_args, fake_kwargs, error) from None


def _is_written_behind_autograd(outcome: Outcome) -> bool:
    """Whether an autograd.Function writes an argument that it does not mark as dirty, and returns a view of it.

    The view has another autograd history than the argument, which the storage's value in a functional trace lacks.
    """
    return any(
        result.requires_grad and result.same_as < 0 and result.shares in outcome.written for result in outcome.results
    )


def _not_one_op(symbol: Symbol, reason: str) -> RunEagerly:
    return RunEagerly(f"{called_name(symbol)}, a function that is one op of the trace, {reason}")


def _as_size(leaf: Any) -> Any:
    """The size that replaces an int of the trace; any other argument unchanged."""
    return leaf.size() if type(leaf) is TracedNumber and leaf.proxy.python_type is int else leaf


def _is_zero(outcome: Outcome, fakes: list[Any]) -> bool:
    """Whether the only result of a call is a new zero tensor of PyTorch, which has no storage."""
    results = outcome.results
    if len(results) != 1 or results[0].same_as >= 0 or results[0].shares >= 0 or results[0].requires_grad:
        return False
    return isinstance(fakes[0], torch.Tensor) and is_zerotensor(fakes[0]) and are_constant(results[0].shape)


def active_recorder() -> Recorder | None:
    """The recorder of the program that this thread is acquiring, or None."""
    recorder: Recorder | None = this_thread.recorder
    return recorder


def program_recorder() -> Recorder | None:
    """`active_recorder` for a call of the program: None while the recorder itself runs torch code."""
    recorder: Recorder | None = this_thread.recorder
    return None if recorder is None or recorder.suspension.active else recorder


def tensor_recorder() -> Recorder | None:
    """`program_recorder` for a call on tensors.

    None under transformations of `torch.func` as well: the ATen calls that they make are recorded instead.
    """
    return None if peek_interpreter_stack() is not None else program_recorder()


def set_active_recorder(recorder: Recorder | None) -> Recorder | None:
    """Make ``recorder`` the active one of this thread; returns the previous one."""
    previous: Recorder | None = this_thread.recorder
    this_thread.recorder = recorder
    return previous
