"""Lines of a trace under construction: what a call gave becomes a bound symbol."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from types import CellType
from typing import Any, Final

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.tensors import Tensors
from thunder_core.acquire.variable import Variable, metadata_key
from thunder_core.errors import UnsupportedError
from thunder_core.guards.torch_generators import TorchGenerators
from thunder_core.ir.attention_kernels import attention_kernels
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket
from thunder_core.symbols.autocast import CLEAR_CACHE
from thunder_core.symbols.functions import set_grad
from thunder_core.symbols.generators import NEW_GENERATOR
from thunder_core.symbols.histories import REBASED
from thunder_core.symbols.opaque import ASSIGNS, CHANGES_AUTOGRAD
from thunder_core.tracing.fake_mode import storage_address
from thunder_core.tracing.outcome import Outcome, Result, Slot
from thunder_core.tracing.user_frames import user_location

# Python numbers among the tensors that these return follow from the shapes of their arguments.
_OPERATORS_OF_PYTORCH: Final = ("torch.ops.aten.", "torch.ops.prims.")
_MAY_ATTEND: Final = frozenset({Tag.ATTENTION, Tag.OPAQUE})


class LineWriter(Tensors):
    """The trace under construction.

    Attributes:
        lines: the bound symbols so far (of the innermost region while a higher-order call is recorded).
        outer_lines: those of the regions around it and of the program, the outermost first.
        ambient: the modes that the whole program runs under.
        kernels: of attention, that the caller of the program allows.
        warning_filters: what `warnings.filters` was before the program ran.
        written: memories that a call wrote.
        other_gradients: tensors whose gradient the program set or deleted, or that a function of the user's changed.
        renamed: tensor objects that got a new name by a write, with what they were before, in order.
        used_autocast: whether a line was recorded under autocast since a region of autocast ended last.
        left_autocast: whether a region of autocast ended after such lines, and none was recorded since.
        is_region_cut: whether an exception left a region or a function of the user's that is one line: no line tells
            what was done before.
        entangled: memories of which tensors show parts that depend on values, so that nothing may write to them.
    """

    def __init__(
        self,
        source_of: Callable[[Any], Any],
        on_escape: Callable[..., Any],
        closure_of: Callable[[CellType], Any],
        generators: TorchGenerators | None,
    ) -> None:
        super().__init__(source_of, on_escape, closure_of, generators, self.new_generator)
        self.lines: list[BoundSymbol] = []
        self.outer_lines: list[list[BoundSymbol]] = []
        self.ambient = current_context()
        self.kernels = attention_kernels()
        self.warning_filters = warnings.filters
        self.used_autocast = False
        self.left_autocast = False
        self.written: set[int] = set()
        self.other_gradients: set[Variable] = set()
        self.renamed: list[tuple[Variable, TensorProxy]] = []
        self.entangled: set[int] = set()
        self.is_region_cut = False

    def context_of(self, symbol: Symbol) -> Context:
        """The modes of a call that is made now, with the kernels of attention if the program chose these for it."""
        context = current_context()
        if symbol.tags & _MAY_ATTEND and (kernels := attention_kernels()) != self.kernels:
            return replace(context, attention=kernels)
        return context

    def end_autocast_region(self) -> None:
        """The program has left a region of autocast: PyTorch forgets what it converted."""
        self.left_autocast |= self.used_autocast
        self.used_autocast = False

    def _begin_autocast_region(self) -> None:
        """A line under autocast is to be recorded."""
        self.used_autocast = True
        if self.left_autocast:
            self.left_autocast = False
            self.lines.append(BoundSymbol(CLEAR_CACHE, (), {}, None, Effects(external=True), None, user_location()))

    def own_context(self, context: Context) -> Context | None:
        """The modes of a line as it keeps them: None for those of the whole program."""
        return context if context != self.ambient else None

    def record(
        self,
        symbol: Symbol,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Call,
        outcome: Outcome,
        fakes: list[Any] | None,
        context: Context,
    ) -> Any:
        """Write the line of a call, and return its result with traced tensors in place of those it would compute."""
        if context.autocast:
            self._begin_autocast_region()
        changes_autograd = symbol.target in CHANGES_AUTOGRAD
        if not changes_autograd:
            self._check_numbers(symbol, outcome)
        identical = all(result.same_as >= 0 for result in outcome.results)
        if (
            identical
            and outcome.results
            and not (outcome.written or outcome.random or outcome.external or changes_autograd)
        ):
            if symbol.target in ASSIGNS:
                raise UnsupportedError(
                    f"the program assigns to the property `{args[1]}` of a tensor, or deletes it",
                    location=user_location(),
                    advice=("do this outside of the compiled function",),
                )
            # `contiguous()` and the like returned their argument
            for index, result in enumerate(outcome.results):
                self._check_storage(symbol, call.variables[result.same_as], fakes[index] if fakes else None)
            return map_leaves(lambda leaf: _pick(leaf, outcome, call.objects), outcome.structure)
        location = user_location()
        pure = not (outcome.random or outcome.external)
        constant = call.foldable and pure and all(map(self.is_constant, call.variables))
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
                    self.other_gradients.add(variable)
            else:
                variable = self._new_variable(result, call, made, fakes[index] if fakes else None, constant, location)
                objects.append(self.traced(variable))
                proxy = variable.proxy
            made.append(variable)
            proxies.append(proxy)
        self.written.update(call.proxies[index].storage for index in outcome.written)
        if not constant:
            self.storages.constant.difference_update(call.proxies[index].storage for index in outcome.written)
        self._check_writes(symbol, call, outcome, location)
        effects = self._effects(symbol, outcome, call, args, kwargs)
        output = map_leaves(lambda leaf: proxies[leaf.index] if isinstance(leaf, Slot) else leaf, outcome.structure)
        if not outcome.results:
            output = None
        self.lines.append(BoundSymbol(symbol, args, kwargs, output, effects, self.own_context(context), location))
        if outcome.written or changes_autograd:
            arguments = zip(call.variables, call.proxies, strict=True)
            self.follow_history({old.storage for now, old in arguments if self.requires_grad(now) != old.requires_grad})
        return map_leaves(lambda leaf: objects[leaf.index] if isinstance(leaf, Slot) else leaf, outcome.structure)

    def new_generator(self, generator: torch.Generator) -> OpaqueProxy:
        """Record that the program makes a generator, which it has drawn nothing from yet: each run makes its own.

        The line is the program's own, also in a region: what follows a region may use the generator as well.
        """
        proxy = OpaqueProxy(self.names.intermediate(), type(generator).__qualname__)
        lines = self.outer_lines[0] if self.outer_lines else self.lines
        args = (str(generator.device), generator.initial_seed())
        lines.append(
            BoundSymbol(NEW_GENERATOR, args, {}, proxy, Effects(random=True, external=True), None, user_location())
        )
        self.inputs.made(generator, proxy)
        self.generators.made(generator)
        self.generators.watch(generator, "a generator that the program makes")
        return proxy

    def record_effect(
        self,
        symbol: Symbol,
        args: tuple[Any, ...],
        call: Call,
        outcome: Outcome,
        fakes: list[Any],
        first: OpaqueProxy | None,
    ) -> Any:
        """`record` for a line with external effects, which returns ``first`` before its tensors."""
        outcome = replace(outcome, external=True)
        result = self.record(symbol, args, {}, call, outcome, fakes, self.context_of(symbol))
        line = self.lines[-1]
        if first is not None:
            self.lines[-1] = replace(line, output=(first, *(line.output or ())))
        return result

    def follow_history(self, storages: set[int]) -> None:
        """Name anew the tensors of these memories that require grad since a write to one that shares their history."""
        shown = (
            [variable for variable in self.all_variables() if variable.proxy.storage in storages] if storages else []
        )
        found = [(variable, self.requires_grad(variable)) for variable in shown]
        for variable, requires_grad in found:
            old = variable.proxy
            if requires_grad == old.requires_grad:
                continue
            self.renamed.append((variable, old))
            variable.proxy = replace(old, name=self.names.intermediate(), requires_grad=requires_grad)
            variable.key = metadata_key(variable.proxy)
            context = self.own_context(current_context())
            self.lines.append(BoundSymbol(REBASED, (old,), {}, variable.proxy, PURE, context, user_location()))

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
        if any(self.inputs.unknown(proxy.storage) for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to memory of unknown origin: a call that is not recorded, as torch.from_numpy, "
                "made it, or no path leads to it",
                location=location,
                advice=("clone() the tensor before it is written", "pass it as an argument"),
            )
        if not self.entangled.isdisjoint(proxy.storage for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to memory of which another tensor shows a part that depends on values",
                location=location,
                advice=("clone() the result of the call whose position is a tensor (torch.narrow, say)",),
            )

    def _effects(
        self, symbol: Symbol, outcome: Outcome, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Effects:
        external = symbol.target in CHANGES_AUTOGRAD or outcome.external or not (outcome.results or outcome.written)
        if not (outcome.written or outcome.random or external):
            return PURE
        names = tuple(dict.fromkeys(call.proxies[index].name for index in outcome.written))
        return Effects(names, outcome.random, external)

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
        storage = base.proxy.storage if base is not None else self.storages.new(fake)
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
            self.storages.constant.add(storage)
        detached = result.detached and base is not None
        return Variable(proxy, fake=fake, base=base, constant=constant, detached=detached, location=location)

    def _moved(self, variable: Variable, fake: torch.Tensor | None) -> bool:
        """Whether a call gave its argument other memory (``set_``, assignment to ``data``)."""
        if fake is None or fake.layout is not torch.strided:
            return False
        return self.storages.number(storage_address(fake)) != variable.proxy.storage

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
        self.renamed.append((variable, variable.proxy))
        storage = variable.proxy.storage
        if fake is not None and self._moved(variable, fake):
            known = self.storages.number(storage_address(fake))
            storage = self.storages.new(fake) if known is None else known
        variable.proxy = replace(
            variable.proxy,
            name=self.names.intermediate(),
            shape=result.shape,
            stride=result.stride,
            offset=result.offset,
            dtype=result.dtype,
            storage=storage,
            requires_grad=result.requires_grad,
        )
        variable.key = metadata_key(variable.proxy)
        return variable.proxy


def _pick(leaf: Any, outcome: Outcome, objects: list[Any]) -> Any:
    return objects[outcome.results[leaf.index].same_as] if isinstance(leaf, Slot) else leaf
