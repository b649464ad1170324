"""Lines of a trace under construction: what a call gave becomes a bound symbol."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.inputs import Inputs
from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.tensors import Tensors
from thunder_core.acquire.traced_size import traced_size
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket
from thunder_core.symbols.functions import REBASED, set_grad
from thunder_core.symbols.opaque import ASSIGNS, CHANGES_AUTOGRAD
from thunder_core.tracing.fake_tensors import storage_address
from thunder_core.tracing.outcome import Outcome, Result, Slot
from thunder_core.tracing.user_frames import user_location

# Python numbers among the tensors that these return follow from the shapes of their arguments.
_OPERATORS_OF_PYTORCH: Final = ("torch.ops.aten.", "torch.ops.prims.")


class LineWriter:
    """Writes the lines of calls, and makes their results tensor objects of the program."""

    def __init__(self, trace: OpenTrace, inputs: Inputs, tensors: Tensors) -> None:
        self._trace = trace
        self._inputs = inputs
        self._tensors = tensors

    def record(self, symbol: Symbol, call: Call, outcome: Outcome, fakes: list[Any] | None, context: Context) -> Any:
        """Write the line of a call, and return its result with traced tensors in place of those it would compute."""
        if context.autocast:
            self._trace.begin_autocast_region()
        changes_autograd = symbol.target in CHANGES_AUTOGRAD
        if not changes_autograd:
            self._check_numbers(symbol, outcome)
        identical = all(result.same_as >= 0 for result in outcome.results)
        if identical and outcome.results and not (outcome.written or outcome.kept or changes_autograd):
            if symbol.target in ASSIGNS:
                raise UnsupportedError(
                    f"the program assigns to the property `{call.args[1]}` of a tensor, or deletes it",
                    location=user_location(),
                    advice=("do this outside of the compiled function",),
                )
            # `contiguous()` and the like returned their argument
            for index, result in enumerate(outcome.results):
                self._check_storage(symbol, call.variables[result.same_as], fakes[index] if fakes else None)
            return map_leaves(lambda leaf: _pick(leaf, outcome, call.objects), outcome.structure)
        location = user_location()
        constant = call.foldable and not outcome.kept and all(map(self._tensors.is_constant, call.variables))
        proxies: list[TensorProxy] = []
        objects: list[Any] = []
        made: list[Variable] = []
        for index, result in enumerate(outcome.results):
            if result.same_as >= 0:
                objects.append(call.objects[result.same_as])
                variable = call.variables[result.same_as]
                fake = fakes[index] if fakes else None
                self._check_storage(symbol, variable, fake)
                proxy = self._rename(variable, result, fake)
                if symbol.target is set_grad or Tag.LOCAL in symbol.tags:
                    self._tensors.other_gradients.add(variable)
            else:
                variable = self._new_variable(result, call, made, fakes[index] if fakes else None, constant, location)
                objects.append(self._tensors.traced(variable))
                proxy = variable.proxy
            made.append(variable)
            proxies.append(proxy)
        written = {call.proxies[index].storage for index in outcome.written}
        self._trace.storages.written |= written
        if not constant:
            self._trace.storages.constant -= written
        if outcome.written:
            self._check_writes(symbol, call, outcome, location)
        effects = _effects(symbol, outcome, call)
        output = map_leaves(lambda leaf: proxies[leaf.index] if isinstance(leaf, Slot) else leaf, outcome.structure)
        if not outcome.results:
            output = None
        own = self._trace.own_context(context)
        self._trace.lines.append(BoundSymbol(symbol, call.args, call.kwargs, output, effects, own, location))
        if outcome.written or changes_autograd:
            pairs = zip(call.variables, call.proxies, strict=True)
            self.follow_history(
                {old.storage for now, old in pairs if self._tensors.requires_grad(now) != old.requires_grad}
            )
        return map_leaves(
            lambda leaf: objects[leaf.index] if isinstance(leaf, Slot) else traced_size(leaf), outcome.structure
        )

    def follow_history(self, storages: set[int]) -> None:
        """Name anew the tensors of these memories that require grad since a write to one that shares their history."""
        if not storages:
            return
        tensors = self._tensors
        shown = [variable for variable in tensors.all_variables() if variable.proxy.storage in storages]
        for variable, requires_grad in [(variable, tensors.requires_grad(variable)) for variable in shown]:
            old = variable.proxy
            if requires_grad != old.requires_grad:
                self._trace.write(REBASED, (old,), {}, tensors.rename(variable, requires_grad=requires_grad))

    def _check_numbers(self, symbol: Symbol, outcome: Outcome) -> None:
        """Refuse a call that gives Python a value that no line can give it: fakes do not know the value of a run."""
        if outcome.results and not isinstance(symbol.target, OpOverload | OpOverloadPacket):
            return
        if outcome.results and symbol.name.startswith(_OPERATORS_OF_PYTORCH):
            return
        values = [leaf for leaf in iterate_leaves(outcome.structure) if leaf is not None and type(leaf) is not Slot]
        if values:
            raise UnsupportedError(
                f"{symbol.name} gives Python a {type(values[0]).__name__}, which only a run of the program would know",
                location=user_location(),
                advice=(
                    "have the operator return tensors, whose values a compiled program computes in each call",
                    "call it outside of the compiled function and pass the result as an argument",
                ),
            )

    def _check_writes(self, symbol: Symbol, call: Call, outcome: Outcome, location: SourceLocation | None) -> None:
        written = [call.proxies[index] for index in outcome.written]
        if any(proxy.layout is not torch.strided for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to a sparse tensor",
                location=location,
                advice=("use the out-of-place function and rebind the variable",),
            )
        if any(self._inputs.unknown(proxy.storage) for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to memory of unknown origin: a call that is not recorded, as torch.from_numpy, "
                "made it, or no path leads to it",
                location=location,
                advice=("clone() the tensor before it is written", "pass it as an argument"),
            )
        if not self._trace.storages.entangled.isdisjoint(proxy.storage for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to memory of which another tensor shows a part that depends on values",
                location=location,
                advice=("clone() the result of the call whose position is a tensor (torch.narrow, say)",),
            )

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
        storage = base.proxy.storage if base is not None else self._trace.storages.new(fake)
        proxy = TensorProxy(
            self._trace.names.intermediate(),
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
            self._trace.storages.constant.add(storage)
        detached = result.detached and base is not None
        return Variable(proxy, fake=fake, base=base, constant=constant, detached=detached, location=location)

    def _moved(self, variable: Variable, fake: torch.Tensor | None) -> bool:
        """Whether a call gave its argument other memory (``set_``, assignment to ``data``)."""
        if fake is None or fake.layout is not torch.strided:
            return False
        return self._trace.storages.number(storage_address(fake)) != variable.proxy.storage

    def _check_storage(self, symbol: Symbol, variable: Variable, fake: torch.Tensor | None) -> None:
        """Refuse a call that gave its argument other memory, unless that is what it is known for."""
        if Tag.AS_RECORDED not in symbol.tags and self._moved(variable, fake):
            raise UnsupportedError(
                f"{symbol.name} gives {variable.proxy.name} other memory",
                location=user_location(),
                advice=("rebind the variable to the other tensor instead", "assign to its attribute `data`"),
            )

    def _rename(self, variable: Variable, result: Result, fake: torch.Tensor | None) -> TensorProxy:
        """A new name for a tensor object that a call wrote, or whose metadata or memory it changed."""
        storages = self._trace.storages
        storage = variable.proxy.storage
        if fake is not None and self._moved(variable, fake):
            known = storages.number(storage_address(fake))
            storage = storages.new(fake) if known is None else known
        return self._tensors.rename(
            variable,
            shape=result.shape,
            stride=result.stride,
            offset=result.offset,
            dtype=result.dtype,
            storage=storage,
            requires_grad=result.requires_grad,
        )


def _effects(symbol: Symbol, outcome: Outcome, call: Call) -> Effects:
    silent = not (outcome.results or outcome.written or outcome.channels)
    external = symbol.target in CHANGES_AUTOGRAD or outcome.external or silent
    if not (outcome.written or outcome.kept or external):
        return PURE
    names = tuple(dict.fromkeys(call.proxies[index].name for index in outcome.written))
    return Effects(names, outcome.random, external, outcome.channels)


def _pick(leaf: Any, outcome: Outcome, objects: list[Any]) -> Any:
    return objects[outcome.results[leaf.index].same_as] if isinstance(leaf, Slot) else leaf
