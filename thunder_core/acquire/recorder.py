"""Record each torch call of the running program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import CellType
from typing import Any, Final

import torch
from torch.random import fork_rng

from thunder_core.acquire import collectives, data_dependence, reshaping, values
from thunder_core.acquire.arguments import Call, convert
from thunder_core.acquire.attention_masks import MASK_CHECKS
from thunder_core.acquire.eager_modules import Key
from thunder_core.acquire.line_writer import LineWriter
from thunder_core.acquire.switch_changes import SwitchChanges
from thunder_core.acquire.variable import Variable
from thunder_core.errors import EndsRecording
from thunder_core.guards.torch_generators import TorchGenerators
from thunder_core.ir.symbol import Symbol, Tag, as_recorded
from thunder_core.pytorch_internals import DisableTorchFunction, len_torch_function_stack, schema_of
from thunder_core.symbols.opaque import ASKS_AUTOGRAD, CHANGES_AUTOGRAD, READS_AUTOGRAD
from thunder_core.symbols.operators import torch_call
from thunder_core.symbols.registry import registry
from thunder_core.tracing.outcome import Outcome, infer
from thunder_core.tracing.user_frames import calls_program

_NUMBERS: Final = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""What tensors of Python's numbers are; operators of one such tensor give results of these dtypes."""


class GraphNeeded(EndsRecording):
    """Raised in place of a call that asks for the autograd graph, where fakes have none: recording starts again."""


class Recorder(LineWriter):
    """Makes lines of calls, each inferred once.

    Attributes:
        eager_modules: modules whose calls are recorded as one line.
        eager_updates: functions of optimizers whose calls are recorded as one line.
        saw_strides: whether the program asked for strides.
        graph: whether fakes have the autograd graph of the program: each call is inferred then, not equal ones once.
        switches: of PyTorch's, that the program changes.
        works: handles of communication that the program started.
    """

    def __init__(
        self,
        source_of: Callable[[Any], Any],
        eager_modules: frozenset[Key] = frozenset(),
        eager_updates: frozenset[Callable[..., None]] = frozenset(),
        *,
        graph: bool = True,
        closure_of: Callable[[CellType], Any] = lambda _: None,
        generators: TorchGenerators | None = None,
    ) -> None:
        super().__init__(source_of, self._record_escaped, closure_of, generators)
        self.graph = graph
        self.eager_modules = eager_modules
        self.eager_updates = eager_updates
        self.saw_strides = False
        self.switches = SwitchChanges()
        self.works: list[Any] = []
        self._outcomes: dict[Any, Outcome] = {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one call and return its result, with traced tensors in place of the tensors it would compute."""
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        return self.call_symbol(symbol, args, kwargs)

    def call_symbol(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`call` for a canonical symbol and its canonical arguments."""
        outermost = not self.busy
        with self.suspended():
            if outermost:
                self.switches.follow(self)
            return self._call(symbol, args, kwargs)

    def _call(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = Call(self, runs_python=Tag.LOCAL in symbol.tags)
        recorded_args, recorded_kwargs = convert(args, call), convert(kwargs, call)
        if symbol.target in ASKS_AUTOGRAD and not self.graph:
            raise GraphNeeded
        context = self.context_of(symbol)
        key = (symbol, context, torch.get_default_dtype(), len_torch_function_stack(), tuple(call.key))
        fakes: list[Any] | None = None
        outcome = self._outcomes.get(key) if call.hashable and not self.graph else None
        if outcome is None:
            try:
                outcome, fakes = self.infer(symbol, args, kwargs, call.variables)
            except data_dependence.EXCEPTIONS as error:
                return values.find_another_way(self, symbol, args, kwargs, call, error)
            lasting = symbol.target not in CHANGES_AUTOGRAD and symbol.target not in READS_AUTOGRAD
            if outcome.cacheable and call.hashable and lasting:
                self._outcomes[key] = outcome
        if any(reshaping.is_reshaped(result, call) for result in outcome.results):
            value = reshaping.reshape(self, symbol, args, kwargs, call, outcome)
            if value is not NotImplemented:
                return value
            symbol = as_recorded(symbol)
        return self.record(symbol, recorded_args, recorded_kwargs, call, outcome, fakes, context)

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
        with self.mode.observing() as observed, torch.inference_mode(False):
            fake_args, fake_kwargs = self.fakes(args), self.fakes(kwargs)
            arguments = [self.fake(variable) for variable in variables]
            with torch.set_grad_enabled(grad_enabled):
                # code of the user's may seed the generators, which are to be seeded when the program runs
                seeded = fork_rng(devices=[]) if Tag.LOCAL in symbol.tags else nullcontext()
                try:
                    with seeded:
                        outcome = infer(symbol.target, fake_args, fake_kwargs, arguments, observed)
                    if symbol.target in MASK_CHECKS:
                        MASK_CHECKS[symbol.target](*fake_args, **fake_kwargs)
                    return outcome
                except data_dependence.EXCEPTIONS:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever the call raises reaches the user
                    if Tag.LOCAL in symbol.tags:  # a function of the user's, of which lines tell nothing
                        self.is_region_cut = True
                    raise data_dependence.as_eager_raises(symbol, fake_args, fake_kwargs, error) from None

    def _with_tensors(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args`` with tensors for numbers, where an operator of tensors is given numbers alone.

        Dispatch passes the tensors that PyTorch makes of Python numbers as these numbers. Functions of a tensor and a
        number take them, a batching rule that converts one number does not.
        """
        if not args or type(args[0]) not in _NUMBERS or any(isinstance(arg, torch.Tensor) for arg in args):
            return args
        expected = schema_of(func).arguments
        return tuple(
            [
                self.call(torch.scalar_tensor, (arg,), {"dtype": _NUMBERS[type(arg)]})
                if type(arg) in _NUMBERS and str(argument.type) == "Tensor"
                else arg
                for arg, argument in zip(args, expected, strict=False)
            ]
        )

    def _record_escaped(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An ATen call that did not pass the torch-function mode: record it at that level.

        Dispatch suspends the fake mode while it handles the call. It is active again for the inference, where it
        observes effects, and without which operators that take no tensor, such as ``empty``, would compute real ones.
        """
        if registry.is_metadata(func):
            with self.mode:
                return self.ask(func, args, kwargs)
        if schema_of(func).name.startswith("c10d::"):
            with self.mode:
                return collectives.record(self, func, args, kwargs)
        with DisableTorchFunction(), self.mode, warnings.catch_warnings():
            # functorch's own tensors are no leaves, and meta kernels look at their ``.grad``
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            args = self._with_tensors(func, args)
            if torch.Tag.inplace_view in func.tags:
                return reshaping.reshape_escaped(self, func, args, kwargs)
            if schema_of(func).is_mutable:  # functorch relies on what exactly these do to the object
                return self.call(func, args, kwargs)
            return self.call(*torch_call(func, args, kwargs))
