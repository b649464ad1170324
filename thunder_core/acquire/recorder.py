"""Record each torch call of the running program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from types import CellType
from typing import Any, Final, Protocol

import torch
from torch.random import fork_rng

from thunder_core.acquire import data_dependence, defined_sizes, reshaping
from thunder_core.acquire.arguments import Call
from thunder_core.acquire.attempt import Attempt
from thunder_core.acquire.attention_masks import MASK_CHECKS
from thunder_core.acquire.defined_sizes import DefinedSizes
from thunder_core.acquire.input_sizes import InputSizes
from thunder_core.acquire.inputs import Inputs
from thunder_core.acquire.line_writer import LineWriter
from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.prefix import Prefix, is_random
from thunder_core.acquire.switch_changes import SwitchChanges
from thunder_core.acquire.tensors import Suspension, Tensors
from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.acquire.variable import Variable
from thunder_core.errors import EndsRecording, SizeVariesError, UnsupportedError
from thunder_core.guards.torch_generators import TorchGenerators
from thunder_core.ir.size import are_constant
from thunder_core.ir.symbol import Symbol, Tag, as_recorded
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import is_zerotensor, len_torch_function_stack, size_settings
from thunder_core.symbols.opaque import ASKS_AUTOGRAD, CHANGES_AUTOGRAD, READS_AUTOGRAD
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import ObservingFakeMode
from thunder_core.tracing.outcome import GivesWrapperError, Outcome, Result, infer
from thunder_core.tracing.user_frames import calls_program, user_location

_FRACTIONS: Final = (float,)
"""Numbers that elementwise functions take as they come: the metadata of results does not depend on them."""


class GraphNeeded(EndsRecording):
    """Raised in place of a call that asks for the autograd graph, where fakes have none: recording starts again."""


class Resolver(Protocol):
    """A way to know the result of a call that needs values of tensors while a program is recorded.

    A resolver holds no request: the tensors in it must not outlive the recording.
    """

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """The result, after recording the lines that it needs; or why it is not known.

        Raises:
            AcquisitionError: no other resolver may be asked.
        """


class Recorder:
    """Makes lines of calls, each inferred once.

    Args:
        source_of: where the prologue finds an object; None for one that no path leads to.
        resolvers: the ways to know values, in order.
        record_escaped: records a call of an ATen operator that did not pass the torch-function mode.
        closure_of: the path to the variable of a function that existed before the program, by the variable's cell.
        generators: PyTorch's random generators that the program reaches.
        input_sizes: gives inputs sizes that vary between calls; None where all sizes are constants.

    Attributes:
        attempt: how the program is recorded this time.
        trace: what was recorded so far.
        inputs: the real tensors and other objects met so far, as inputs of the trace.
        tensors: the tensor objects of the program.
        writer: writes lines whose results are tensor objects.
        suspension: entered while the recorder runs torch code of its own.
        switches: of PyTorch's, that the program changes.
        prefix: the lines so far, run for values that the program reads.
        defined_sizes: the sizes that lines of the program define; None where these are constants.
        works: handles of communication that the program started.
        saw_strides: whether the program asked for strides.
        mode: the torch-function mode that hands it calls.
        applied: the autograd.Function that PyTorch applies to wrappers now.
        after_calls: called when the call of a module ends that a plugin has taken over, also by an exception.
        notes: what interceptions of plugins remember while this program is recorded, by keys of theirs.
        wrappers: tensors that hold tensors, by id, of those that existed before the program.
        differentiable_calls: calls with wrappers whose derivatives are to be recorded.
        checkpoints: how many checkpoint regions are open.
        makers: whether functions of libraries make wrappers of plain tensors, by class.
    """

    def __init__(
        self,
        source_of: Callable[[Any], Any],
        resolvers: tuple[Resolver, ...],
        record_escaped: Callable[[Recorder, Any, tuple[type, ...], tuple[Any, ...], dict[str, Any]], Any],
        attempt: Attempt,
        *,
        closure_of: Callable[[CellType], Any] = lambda _: None,
        generators: TorchGenerators | None = None,
        input_sizes: InputSizes | None = None,
    ) -> None:
        fake_mode = ObservingFakeMode(partial(record_escaped, self))
        self.attempt = attempt
        self.trace = OpenTrace()
        self.suspension = Suspension()
        self.inputs = Inputs(self.trace, fake_mode, generators or TorchGenerators(), source_of, closure_of, input_sizes)
        self.tensors = Tensors(self.trace, self.inputs, fake_mode, self.suspension)
        self.writer = LineWriter(self.trace, self.inputs, self.tensors)
        self.switches = SwitchChanges()
        self.prefix = Prefix()
        self.defined_sizes = None
        if input_sizes is not None and attempt.defines_sizes and attempt.guesses is not None:
            self.defined_sizes = DefinedSizes(input_sizes.sizes, self.trace)
        self.works: list[Any] = []
        self.saw_strides = False
        self.mode: Any = None
        self.applied: Any = None
        self.after_calls: list[Callable[[], None]] = []
        self.notes: dict[Any, Any] = {}
        self.wrappers: dict[int, torch.Tensor] = {}
        self.differentiable_calls: list[Any] = []
        self.checkpoints = 0
        self.makers: dict[Any, bool] = {}
        self._resolvers = resolvers
        self._outcomes: dict[Any, Outcome] = {}

    def close(self) -> None:
        """Let go of the user's objects at once instead of when reference cycles are collected."""
        self.tensors.close()
        self.tensors.fake_mode.on_escape = None
        self.inputs.close()
        self.prefix.close()
        self.after_calls.clear()
        self.notes.clear()
        self.wrappers.clear()
        self.differentiable_calls.clear()
        self.mode = None

    @property
    def keeps_numbers(self) -> bool:
        """Whether the program has been given numbers that lines compute."""
        guesses = self.attempt.guesses
        return guesses is not None and guesses.numbers and bool(self.tensors.numbers)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one call and return its result, with traced tensors in place of the tensors it would compute."""
        if self.tensors.numbers:
            args, kwargs = map_leaves(_as_size, (args, kwargs))
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        return self.call_symbol(symbol, args, kwargs)

    def call_symbol(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`call` for a canonical symbol and its canonical arguments."""
        outermost = not self.suspension.active
        with self.suspension:
            if outermost:
                self.switches.follow(self.trace)
            return self._call(symbol, args, kwargs)

    def _call(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        numbers = _FRACTIONS if Tag.ELEMENTWISE in symbol.tags else ()
        call = Call(self.inputs, args, kwargs, runs_python=Tag.LOCAL in symbol.tags, numbers=numbers)
        if symbol.target in ASKS_AUTOGRAD and not self.attempt.graph:
            raise GraphNeeded
        if symbol.target in ASKS_AUTOGRAD and self.inputs.made_objects.lists:
            raise UnsupportedError(
                f"{symbol.name} would call a hook that uses a list which the program makes: the program, which goes on "
                "while it is recorded, would not see what the hook does to the list",
                location=user_location(),
                advice=("compute what the hook computes from the gradient after the backward",),
            )
        context = self.trace.context_of(symbol)
        key = (symbol, context, torch.get_default_dtype(), len_torch_function_stack(), tuple(call.key))
        fakes: list[Any] | None = None
        outcome = self._outcomes.get(key) if call.hashable and not self.attempt.graph else None
        if outcome is None:
            try:
                outcome, fakes = self.infer(symbol, args, kwargs, call.variables)
            except data_dependence.EXCEPTIONS as error:
                return self.resolve(ValueRequest(symbol, args, kwargs, call, error))
            if not self._holds_for_all_sizes(symbol, call, outcome):
                outcome, fakes = self._inferred_with_facts(symbol, args, kwargs, call, outcome)
            if _is_zero(outcome, fakes):
                return self._zeros(outcome.results[0], fakes[0])
            lasting = symbol.target not in CHANGES_AUTOGRAD and symbol.target not in READS_AUTOGRAD
            if outcome.cacheable and call.hashable and lasting:
                self._outcomes[key] = outcome
        arguments = [result for result in outcome.results if result.same_as >= 0]
        if arguments and any(reshaping.is_reshaped(result, call) for result in arguments):
            value = reshaping.reshape(self.tensors, self.call_symbol, symbol, args, kwargs, call, outcome)
            if value is not NotImplemented:
                return value
            symbol = as_recorded(symbol)
        return self.writer.record(symbol, call, outcome, fakes, context)

    def _holds_for_all_sizes(self, symbol: Symbol, call: Call, outcome: Outcome) -> bool:
        """Whether a call gives the same for sizes that lines define, where these are 0 and 1."""
        sizes = None if self.defined_sizes is None else self.defined_sizes.sizes
        if sizes is None or not sizes.general or not sizes.defined:
            return True
        return defined_sizes.holds(sizes, self.tensors.fake_mode, symbol, call, outcome)

    def _inferred_with_facts(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, outcome: Outcome
    ) -> tuple[Outcome, list[Any]]:
        """As `infer`, where PyTorch asks what sizes are.

        Raises:
            SizeVariesError: the call has written to the fakes.
        """
        if outcome.written:
            raise SizeVariesError(f"{symbol.name} does something else for sizes 0 and 1", location=user_location())
        with size_settings.patch(backed_size_oblivious=False):
            return self.infer(symbol, args, kwargs, call.variables)

    def _zeros(self, result: Result, fake: Any) -> Any:
        """Zeros in memory in place of one of PyTorch's zero tensors, which kernels of executors cannot read.

        Forward-mode differentiation makes them, and products with them, which are zero whatever the other factor is.
        """
        made = self.call(torch.zeros, (result.shape,), {"dtype": result.dtype, "device": result.device})
        variable = self.tensors.variable(made)
        variable.fake, variable.key = fake, (*variable.key, "zero tensor")
        return made

    def resolve(self, request: ValueRequest) -> Any:
        """The result of a call that needs values, by the first resolver that knows it.

        Raises:
            AcquisitionError: none does. Its cause has a note for each of them.
        """
        reasons: list[str] = []
        for resolver in self._resolvers:
            answer = resolver.resolve(self, request)
            if isinstance(answer, Resolved):
                return answer.result
            request.cause.add_note(f"{type(resolver).__name__}: {answer.reason}")
            reasons += [answer.reason] if answer.blocking else []
        variables = request.call.variables
        drawn = request.reads and is_random(
            self.trace.lines, self.inputs.proxies, {variable.proxy.storage for variable in variables}
        )
        raise data_dependence.error(
            request.symbol, variables, user_location(), request.cause, drawn=drawn, reasons=reasons
        ) from request.cause

    @calls_program
    def infer(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], variables: Iterable[Variable]
    ) -> tuple[Outcome, list[Any]]:
        """What a call gives, found out on fakes, and the fake of each result.

        Args:
            variables: of the tensors among the arguments that results may be, or share memory with.

        Raises:
            data_dependence.EXCEPTIONS: the result needs values, or PyTorch cannot tell it without running the call.
            Exception: what eager raises for the call.
        """
        # asked before leaving inference mode, which enables gradients
        grad_enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        with self.tensors.fake_mode.observing() as observed, torch.inference_mode(False):
            fake_args, fake_kwargs = self.tensors.fakes(args), self.tensors.fakes(kwargs)
            arguments = [self.tensors.fake(variable) for variable in variables]
            with torch.set_grad_enabled(grad_enabled):
                # code of the user's may seed the generators, which are to be seeded when the program runs
                seeded = fork_rng(devices=[]) if Tag.LOCAL in symbol.tags else nullcontext()
                try:
                    with seeded:
                        outcome = infer(symbol.target, fake_args, fake_kwargs, arguments, observed)
                    if symbol.target in MASK_CHECKS:
                        MASK_CHECKS[symbol.target](*fake_args, **fake_kwargs)
                    return outcome
                except (*data_dependence.EXCEPTIONS, GivesWrapperError):
                    raise
                except Exception as error:  # noqa: BLE001 - whatever the call raises reaches the user
                    if Tag.LOCAL in symbol.tags:  # a function of the user's, of which lines tell nothing
                        self.trace.is_region_cut = True
                    raise data_dependence.as_eager_raises(symbol, fake_args, fake_kwargs, error) from None


def _as_size(leaf: Any) -> Any:
    """An argument, with the number of this call in place of an int that a line computes."""
    return leaf.size() if type(leaf) is TracedNumber and leaf.proxy.python_type is int else leaf


def _is_zero(outcome: Outcome, fakes: list[Any]) -> bool:
    """Whether the result of a call is a new zero tensor of PyTorch's, one without memory."""
    results = outcome.results
    if len(results) != 1 or results[0].same_as >= 0 or results[0].shares >= 0 or results[0].requires_grad:
        return False
    return isinstance(fakes[0], torch.Tensor) and is_zerotensor(fakes[0]) and are_constant(results[0].shape)
