"""Record each torch call of the running program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder_core.acquire import data_dependence, reshaping, values
from thunder_core.acquire.arguments import Call, convert
from thunder_core.acquire.attention_masks import MASK_CHECKS
from thunder_core.acquire.eager_modules import Key
from thunder_core.acquire.line_writer import LineWriter
from thunder_core.acquire.outcome import Outcome, infer
from thunder_core.acquire.variable import Variable
from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.operators import torch_call
from thunder_core.symbols.registry import registry


class Recorder(LineWriter):
    """Makes lines of calls, each inferred once.

    Attributes:
        eager_modules: modules whose calls are recorded as one line.
        saw_strides: whether the program asked for strides.
    """

    def __init__(self, source_of: Callable[[Any], Any], eager_modules: frozenset[Key] = frozenset()) -> None:
        super().__init__(source_of, self._record_escaped)
        self.eager_modules = eager_modules
        self.saw_strides = False
        self._outcomes: dict[Any, Outcome] = {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one call and return its result, with traced tensors in place of the tensors it would compute."""
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        return self.call_symbol(symbol, args, kwargs)

    def call_symbol(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`call` for a canonical symbol and its canonical arguments."""
        outer, self.busy = self.busy, True
        try:
            return self._call(symbol, args, kwargs)
        finally:
            self.busy = outer

    def _call(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = Call(self)
        recorded_args, recorded_kwargs = convert(args, call), convert(kwargs, call)
        context = self.context_of(symbol)
        key = (symbol, context, torch.get_default_dtype(), torch._C._len_torch_function_stack(), tuple(call.key))
        fakes: list[Any] | None = None
        outcome = self._outcomes.get(key) if call.hashable else None
        if outcome is None:
            try:
                outcome, fakes = self.infer(symbol, args, kwargs, call.variables)
            except data_dependence.EXCEPTIONS as error:
                return values.find_another_way(self, symbol, args, kwargs, call, error)
            if outcome.cacheable and call.hashable:
                self._outcomes[key] = outcome
        if any(reshaping.is_reshaped(result, call) for result in outcome.results):
            return reshaping.reshape(self, symbol, args, kwargs, call, outcome)
        return self.record(symbol, recorded_args, recorded_kwargs, call, outcome, fakes, context)

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
                try:
                    outcome = infer(symbol.target, fake_args, fake_kwargs, arguments, observed)
                    if symbol.target in MASK_CHECKS:
                        MASK_CHECKS[symbol.target](*fake_args, **fake_kwargs)
                    return outcome
                except data_dependence.EXCEPTIONS:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever the call raises reaches the user
                    raise data_dependence.as_eager_raises(symbol, fake_args, fake_kwargs, error) from None

    def _record_escaped(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An ATen call that did not pass the torch-function mode: record it at that level."""
        with torch._C.DisableTorchFunction(), warnings.catch_warnings():
            # functorch's own tensors are no leaves, and meta kernels look at their ``.grad``
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            if torch.Tag.inplace_view in func.tags:
                return reshaping.reshape_escaped(self, func, args, kwargs)
            if func._schema.is_mutable:  # functorch relies on what exactly these do to the object
                return self.call(func, args, kwargs)
            return self.call(*torch_call(func, args, kwargs))
