"""Write down each torch call of the running program as a bound symbol."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from thunder_core.acquire import concrete, data_dependence
from thunder_core.acquire.arguments import Call, convert
from thunder_core.acquire.fake import AcquisitionFakeMode, make_alias, make_derived, storage_address
from thunder_core.acquire.inputs import Inputs
from thunder_core.acquire.naming import Names
from thunder_core.acquire.outcome import Outcome, Result, Slot, infer
from thunder_core.acquire.probe import probe
from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.acquire.traced_tensor import TracedTensor
from thunder_core.acquire.user_frames import user_location
from thunder_core.acquire.variable import Variable, metadata_key
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import NumberProxy, TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols import functions
from thunder_core.symbols.checks import CHECK_METADATA
from thunder_core.symbols.registry import registry

# Calls that return their argument after changing what autograd knows about it.
_CHANGES_AUTOGRAD = frozenset(
    {
        torch.Tensor.requires_grad_,
        torch.Tensor.retain_grad,
        torch.Tensor.register_hook,
        torch.Tensor.register_post_accumulate_grad_hook,
        torch.Tensor.detach_,
        functions.set_requires_grad,
        functions.set_grad,
    }
)


class Recorder:
    """The trace under construction, and the state of every tensor object the program has touched.

    Attributes:
        lines: the bound symbols so far (of the innermost region while a higher-order call is recorded).
        inputs: the real tensors and opaque objects met so far, as inputs of the trace.
        saw_strides: whether the program asked for strides.
        busy: True while the recorder itself runs torch code.
    """

    def __init__(self, inputs_source: Callable[[Any], Any]) -> None:
        self.lines: list[BoundSymbol] = []
        self.names = Names()
        self.mode = AcquisitionFakeMode(self._record_escaped)
        self.ambient = current_context()
        self.inputs = Inputs(self, inputs_source)
        self.made: list[weakref.ref[TracedTensor]] = []
        self.constant_storages: set[int] = set()
        self.busy = False
        self.saw_strides = False
        self._outcomes: dict[Any, Outcome] = {}
        self._entangled: set[int] = set()
        self._storage_numbers: dict[int, int] = {}
        self._storages_alive: list[Any] = []
        self._next_storage = 0

    def close(self) -> None:
        """Let go of the user's objects at once instead of when reference cycles are collected."""
        self.mode.on_escape = None
        self.inputs.close()
        self._outcomes.clear()
        self.made.clear()

    # ---- recording ----------------------------------------------------------------------------------------------

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
        context = current_context()
        key = (symbol, context, torch.get_default_dtype(), torch._C._len_torch_function_stack(), tuple(call.key))
        fakes: list[Any] | None = None
        outcome = self._outcomes.get(key) if call.hashable else None
        if outcome is None:
            try:
                outcome, fakes = self._infer(symbol, args, kwargs, call)
            except data_dependence.EXCEPTIONS as error:
                return self._evaluate_or_raise(symbol, args, kwargs, call, error)
            if outcome.cacheable and call.hashable:
                self._outcomes[key] = outcome
        if any(_reshaped(result, call) for result in outcome.results):
            return self._reshape(symbol, args, kwargs, call, outcome)
        return self._record(symbol, recorded_args, recorded_kwargs, call, outcome, fakes, context)

    def _reshape(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, outcome: Outcome
    ) -> Any:
        """``x.t_()`` and ``out=`` of another size: the object stands for another view, or another tensor, from here on."""
        index = outcome.results[0].same_as
        variable, tensor = call.variables[index], call.objects[index]
        if kwargs.get("out") is tensor and type(tensor) is TracedTensor and not variable.proxy.numel:
            value = self._call(symbol, args, {name: item for name, item in kwargs.items() if name != "out"})
        elif symbol.functional is not None and len(outcome.results) == 1:
            assert variable.fake is not None
            with self.mode.observing():
                variable.fake = make_alias(variable.fake, variable.proxy)  # as it was before the call
            value = self._call(symbol.functional, args, kwargs)
            if value.variable.proxy.storage != variable.proxy.storage:
                raise self._resized(symbol, variable)
            if type(tensor) is not TracedTensor:
                self.inputs.reshaped[id(tensor)] = variable
        else:
            raise self._resized(symbol, variable)
        made: Variable = value.variable
        variable.proxy, variable.key, variable.fake, variable.base = made.proxy, made.key, made.fake, made.base
        return tensor

    def _resized(self, symbol: Symbol, variable: Variable) -> UnsupportedError:
        return UnsupportedError(
            f"{symbol.name} changes the size of {variable.proxy.name} in place",
            location=user_location(5),
            advice=("use the out-of-place function and rebind the variable",),
        )

    def _infer(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call
    ) -> tuple[Outcome, list[Any]]:
        # asked before leaving inference mode, which enables gradients
        grad_enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        with self.mode.observing() as observed, torch.inference_mode(False):
            fake_args, fake_kwargs = self._fakes(args), self._fakes(kwargs)
            arguments = [self.fake(variable) for variable in call.variables]
            with torch.set_grad_enabled(grad_enabled):
                try:
                    return infer(symbol.target, fake_args, fake_kwargs, arguments, observed)
                except data_dependence.EXCEPTIONS:
                    raise
                except Exception as error:
                    raise data_dependence.as_eager_raises(symbol, fake_args, fake_kwargs, error) from None

    def _fakes(self, value: Any) -> Any:
        return map_leaves(
            lambda leaf: self.fake(self.variable(leaf)) if isinstance(leaf, torch.Tensor) else leaf, value
        )

    def _record(
        self,
        symbol: Symbol,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Call,
        outcome: Outcome,
        fakes: list[Any] | None,
        context: Context,
    ) -> Any:
        if not outcome.results and not outcome.written and outcome.structure is not None:
            return outcome.structure  # a question about metadata, answered
        identical = all(result.same_as >= 0 for result in outcome.results)
        if identical and outcome.results and not outcome.written and not outcome.random:
            # `contiguous()` and the like returned their argument, or metadata of it changed
            if symbol.target not in _CHANGES_AUTOGRAD:
                for index, result in enumerate(outcome.results):
                    self._check_storage(symbol, call.variables[result.same_as], fakes[index] if fakes else None)
                return map_leaves(lambda leaf: _pick(leaf, outcome, call.objects), outcome.structure)
        location = user_location(4)
        constant = all(v.constant for v in call.variables) and not outcome.random and call.foldable
        proxies: list[TensorProxy] = []
        objects: list[Any] = []
        made: list[Variable] = []
        for index, result in enumerate(outcome.results):
            if result.same_as >= 0:
                self._check_storage(symbol, call.variables[result.same_as], fakes[index] if fakes else None)
                objects.append(call.objects[result.same_as])
                variable = call.variables[result.same_as]
                proxy = self._rename(variable, result, result.same_as in outcome.written)
            else:
                variable = self._new_variable(result, call, made, fakes[index] if fakes else None, constant, location)
                objects.append(self.traced(variable))
                proxy = variable.proxy
            made.append(variable)
            proxies.append(proxy)
        written = [call.variables[index].proxy.storage for index in outcome.written]
        if not constant:
            self.constant_storages.difference_update(written)
        if any(call.proxies[index].layout is not torch.strided for index in outcome.written):
            raise UnsupportedError(
                f"{symbol.name} writes to a sparse tensor",
                location=location,
                advice=("use the out-of-place function and rebind the variable",),
            )
        if not self._entangled.isdisjoint(written):
            raise UnsupportedError(
                f"{symbol.name} writes to memory of which another tensor shows a part that depends on values",
                location=location,
                advice=("clone() the result of the call whose position is a tensor (torch.narrow, say)",),
            )
        effects = self._effects(symbol, outcome, call, args, kwargs)
        output = map_leaves(lambda leaf: proxies[leaf.index] if isinstance(leaf, Slot) else leaf, outcome.structure)
        if not outcome.results:
            output = None
        shown = context if context != self.ambient else None
        self.lines.append(BoundSymbol(symbol, args, kwargs, output, effects, shown, location))
        return map_leaves(lambda leaf: objects[leaf.index] if isinstance(leaf, Slot) else leaf, outcome.structure)

    def _effects(
        self, symbol: Symbol, outcome: Outcome, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Effects:
        external = symbol.target in _CHANGES_AUTOGRAD or (not outcome.results and not outcome.written)
        if not (outcome.written or outcome.random or external):
            return PURE
        names = tuple(dict.fromkeys(call.proxies[index].name for index in outcome.written))
        return Effects(names, outcome.random, external)

    def read_value(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that reads values into Python: answered for constants, an error otherwise."""
        outer, self.busy = self.busy, True
        try:
            symbol, args, kwargs = registry.resolve(func, args, kwargs)
            call = Call(self)
            convert(args, call), convert(kwargs, call)
            return self._evaluate_or_raise(symbol, args, kwargs, call, data_dependence.ValueNeeded(symbol.name))
        finally:
            self.busy = outer

    def defer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a comparison whose result is a Python bool that only the running program knows."""
        outer, self.busy = self.busy, True
        try:
            symbol, args, kwargs = registry.resolve(func, args, kwargs)
            call = Call(self)
            recorded = convert(args, call), convert(kwargs, call)
            if call.foldable and all(self.is_constant(variable) for variable in call.variables):
                return concrete.evaluate(self, symbol, args, kwargs)
            proxy = NumberProxy(self.names.intermediate(), bool)
            context = current_context()
            shown = context if context != self.ambient else None
            self.lines.append(BoundSymbol(symbol, *recorded, proxy, PURE, shown, user_location(3)))
            return TracedNumber(proxy, symbol, tuple(call.variables))
        finally:
            self.busy = outer

    def ask(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask the fakes of the arguments a question about metadata."""
        outer, self.busy = self.busy, True
        try:
            with self.mode.observing():
                return func(*self._fakes(args), **self._fakes(kwargs))
        finally:
            self.busy = outer

    # ---- variables ----------------------------------------------------------------------------------------------

    def variable(self, tensor: torch.Tensor) -> Variable:
        """The variable of a tensor object; a real tensor becomes an input of the trace."""
        if type(tensor) is TracedTensor:
            return tensor.variable
        return self.inputs.lift(tensor)

    def traced(self, variable: Variable) -> TracedTensor:
        """A new traced tensor for a new variable."""
        tensor = TracedTensor(variable)
        self.made.append(weakref.ref(tensor))
        return tensor

    def _new_variable(
        self,
        result: Result,
        call: Call,
        made: list[Variable],
        fake: Any,
        constant: bool,
        location: SourceLocation | None,
    ) -> Variable:
        base = None
        if result.shares >= 0:
            base = call.variables[result.shares]
        elif result.shares_result >= 0:
            base = made[result.shares_result]
        storage = base.proxy.storage if base is not None else self.new_storage(fake)
        proxy = TensorProxy(
            self.names.intermediate(),
            result.shape,
            result.stride,
            result.dtype,
            result.device,
            result.requires_grad,
            storage,
            result.offset,
            result.layout,
        )
        if base is None and constant:
            self.constant_storages.add(storage)
        return Variable(proxy, fake=fake, base=base, constant=constant, location=location)

    def _check_storage(self, symbol: Symbol, variable: Variable, fake: torch.Tensor | None) -> None:
        """Refuse a call that gave its argument other memory (``set_``, assignment to ``data``)."""
        if fake is None or fake.layout is not torch.strided:
            return
        if self._storage_numbers.get(storage_address(fake)) != variable.proxy.storage:
            raise UnsupportedError(
                f"{symbol.name} gives {variable.proxy.name} other memory",
                location=user_location(5),
                advice=("rebind the variable to the other tensor instead",),
            )

    def _rename(self, variable: Variable, result: Result, written: bool) -> TensorProxy:
        """A new name for a tensor object that a call wrote or whose metadata it changed."""
        variable.proxy = replace(
            variable.proxy,
            name=self.names.intermediate(),
            shape=result.shape,
            stride=result.stride,
            offset=result.offset,
            requires_grad=result.requires_grad,
        )
        variable.key = metadata_key(variable.proxy)
        return variable.proxy

    def new_storage(self, fake: torch.Tensor | None) -> int:
        """A storage number; the storage of ``fake`` gets it and is kept alive so that its address stays its own."""
        number = self._next_storage
        self._next_storage += 1
        if fake is not None and fake.layout is torch.strided:
            self.bind_storage(fake, number)
        return number

    def bind_storage(self, fake: torch.Tensor, number: int) -> None:
        """Remember the storage number of a fake's storage."""
        storage = fake.untyped_storage()
        self._storage_numbers[storage._cdata] = number
        self._storages_alive.append(storage)

    def fake(self, variable: Variable) -> Any:
        """The fake of a variable, made now if it was not needed before."""
        if variable.fake is None:
            if variable.base is not None:
                variable.fake = make_alias(self.fake(variable.base), variable.proxy)
            else:
                variable.fake = make_derived(self.mode, variable.proxy)
                self.bind_storage(variable.fake, variable.proxy.storage)
        return variable.fake

    # ---- the unusual --------------------------------------------------------------------------------------------

    def _record_escaped(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An ATen call that did not pass the torch-function mode: record it at that level."""
        with torch._C.DisableTorchFunction():
            return self.call(func, args, kwargs)

    def _evaluate_or_raise(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, error: Exception
    ) -> Any:
        """A value is needed: compute it when nothing depends on an input, else look for another way or explain."""
        read = isinstance(error, data_dependence.ValueNeeded)
        if not read:
            numbers = map_leaves(self._as_number, (args, kwargs))
            pairs = zip(iterate_leaves(numbers), iterate_leaves((args, kwargs)), strict=True)
            if any(new is not old for new, old in pairs):
                try:
                    return self._call(symbol, *numbers)
                except TypeError:  # it takes a tensor there
                    error = error.with_traceback(None)
        if call.foldable and all(self.is_constant(variable) for variable in call.variables):
            value = concrete.evaluate(self, symbol, args, kwargs)
            return map_leaves(
                lambda leaf: self.inputs.constant(leaf) if isinstance(leaf, torch.Tensor) else leaf, value
            )
        if read:
            raise data_dependence.error(symbol, call.variables, user_location(4), error) from error
        return self._probe_or_raise(symbol, args, kwargs, call, error)

    def _as_number(self, leaf: Any) -> Any:
        """A constant integer tensor, used as a size or an index, as the number that it is."""
        if isinstance(leaf, torch.Tensor):
            variable = self.variable(leaf)
            if not variable.proxy.shape and not variable.proxy.dtype.is_floating_point and self.is_constant(variable):
                return concrete.number(self, leaf)
        return leaf

    def _probe_or_raise(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, error: Exception
    ) -> Any:
        with self.mode.observing():
            found = probe(symbol.target, self._fakes(args), self._fakes(kwargs))
        if found is None:
            raise data_dependence.error(symbol, call.variables, user_location(5), error) from error
        with self.mode.observing() as observed:
            device = call.proxies[0].device if call.proxies else torch.device("cpu")
            made = map_leaves(lambda leaf: FakeTensor(self.mode, leaf, device), found.result)
            outcome, fakes = infer(lambda: made, (), {}, [], observed)
        if torch.is_grad_enabled() and any(variable.proxy.requires_grad for variable in call.variables):
            marked = [
                replace(r, requires_grad=r.dtype.is_floating_point or r.dtype.is_complex) for r in outcome.results
            ]
            outcome, fakes = replace(outcome, results=tuple(marked)), []
        recorded = convert(args, Call(self)), convert(kwargs, Call(self))
        result = self._record(symbol, *recorded, call, outcome, fakes or None, current_context())
        line = self.lines[-1]
        for proxy in line.outputs():
            assert isinstance(proxy, TensorProxy)
            checked = (proxy, proxy.shape, proxy.stride, proxy.dtype)
            self.lines.append(
                BoundSymbol(CHECK_METADATA, checked, {}, None, Effects(external=True), line.context, line.location)
            )
            if found.views:
                self._entangled.update((proxy.storage, *(other.storage for other in call.proxies)))
        return result

    def is_constant(self, variable: Variable) -> bool:
        """Whether a tensor's value is the same in every run."""
        return variable.constant and variable.proxy.storage in self.constant_storages


def _reshaped(result: Result, call: Call) -> bool:
    if result.same_as < 0:
        return False
    return (result.shape, result.stride, result.offset) != call.proxies[result.same_as].geometry


def _pick(leaf: Any, outcome: Outcome, objects: list[Any]) -> Any:
    return objects[outcome.results[leaf.index].same_as] if isinstance(leaf, Slot) else leaf


__all__ = ["CallStyle", "Recorder", "storage_address"]
