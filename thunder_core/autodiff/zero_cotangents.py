"""Specialization of a backward trace to outputs without cotangent and to gradients that are not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.symbols.registry import registry


@dataclass(frozen=True)
class ZeroCotangents(Pass[Trace]):
    """Specializes a backward trace to absent cotangents and unneeded gradients.

    A backward trace is linear in its cotangents. So an op is removed if all its cotangent-dependent arguments are zero;
    a sum with a zero is replaced by its other argument; hooks and functions of the user get None for a zero; any other
    op that needs a zero gets one that is created before it. Only the sums with which backward traces accumulate
    cotangents are simplified. Hooks and the backward of executors run only for gradients that are needed. The inputs of
    the result are the cotangents that are present, and the saved values that its ops still read.

    Attributes:
        cotangents: names of all cotangents.
        absent: names of the cotangents that are zero.
        unwanted: positions of the gradients that are not needed.
    """

    name: ClassVar[str] = "ZeroCotangents"

    cotangents: frozenset[str]
    absent: frozenset[str]
    unwanted: frozenset[int]

    def run(self, trace: Trace, context: PassContext) -> Trace:
        walk = _Walk(self.cotangents, self.absent)
        for bound in trace.symbols:
            walk.visit(bound)
        output = tuple(
            [
                None if index in self.unwanted or item is None or item.name in walk.zero else walk.value(item)
                for index, item in enumerate(trace.output)
            ]
        )
        ops = _without_idle_hooks(walk.ops, output)
        left = _without_unused(without_dead_code(replace(trace.with_symbols(ops, self.name), output=output)))
        present = self.cotangents - self.absent
        needed = present | (_read(left) - self.cotangents)
        return replace(left, inputs=tuple([proxy for proxy in trace.inputs if proxy.name in needed]))


class _Walk:
    """One walk over the backward trace.

    Attributes:
        dependent: names of values that depend on a cotangent.
        zero: names of the dependent values that are zero.
        ops: the ops of the result.
    """

    def __init__(self, cotangents: frozenset[str], absent: frozenset[str]) -> None:
        self.dependent = set(cotangents)
        self.zero = set(absent)
        self.ops: list[BoundSymbol] = []
        self._replaced: dict[str, Any] = {}
        self._sum = registry.resolve(torch.add, (0, 0), {})[0]

    def value(self, leaf: Any) -> Any:
        """The value that replaces a leaf in the result."""
        return self._replaced.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

    def visit(self, bound: BoundSymbol) -> None:
        """Copy, simplify or remove one op."""
        inputs = {proxy.name for proxy in bound.inputs()} & self.dependent
        outputs = bound.outputs()
        if not inputs:
            self.ops.append(bound)
            return
        self.dependent.update(proxy.name for proxy in outputs)
        zeros = inputs & self.zero
        if zeros == inputs:
            self.zero.update(proxy.name for proxy in outputs)
        elif zeros and bound.symbol is self._sum and len(bound.args) == 2 and not bound.kwargs:
            (other,) = [item for item in bound.args if getattr(item, "name", None) not in zeros]
            self._replaced[outputs[0].name] = self.value(other)
        elif Tag.HOOK in bound.symbol.tags:
            self._hooks(bound)
        elif Tag.PARTIAL in bound.symbol.tags:
            self.ops.append(bound.map_arguments(lambda leaf: self._present(self.value(leaf))))
        else:
            self._create(zeros, bound)
            self.ops.append(bound.map_arguments(self.value))

    def _hooks(self, bound: BoundSymbol) -> None:
        """Copy a call of hooks, with None for zero gradients."""
        if Tag.COMPONENTWISE in bound.symbol.tags:
            pairs = zip(bound.args[1], bound.output, strict=True)
            self.zero.update(new.name for old, new in pairs if new is not None and self._present(old) is None)
        bound = bound.map_arguments(lambda leaf: self._present(self.value(leaf)))
        self.ops.append(replace(bound, output=map_leaves(self._present, bound.output)))

    def _present(self, leaf: Any) -> Any:
        return None if isinstance(leaf, TensorProxy) and leaf.name in self.zero else leaf

    def _create(self, names: set[str], bound: BoundSymbol) -> None:
        """Add ops that create the zeros of these names."""
        for proxy in bound.inputs():
            if proxy.name in names & self.zero and isinstance(proxy, TensorProxy):
                kwargs = {"dtype": proxy.dtype, "device": proxy.device}
                symbol, args, kwargs = registry.resolve(torch.zeros, (tuple(proxy.shape),), kwargs)
                self.zero.discard(proxy.name)
                self.ops.append(BoundSymbol(symbol, args, kwargs, proxy, context=bound.context))


def _without_idle_hooks(ops: Sequence[BoundSymbol], output: tuple[Any, ...]) -> list[BoundSymbol]:
    """The ops without calls of hooks on which neither ``output`` nor another effect depends."""
    live = {item.name for item in output if item is not None}
    needed = []
    for bound in reversed(ops):
        used = any(proxy.name in live for proxy in bound.outputs())
        if Tag.HOOK in bound.symbol.tags and not used:
            continue
        needed.append(bound)
        if used or not bound.effects.pure:
            live.update(proxy.name for proxy in bound.inputs())
    return needed[::-1]


def _without_unused(trace: Trace) -> Trace:
    """The trace with each backward of an executor narrowed to the gradients that are used."""
    used = _read(trace)

    def narrowed(bound: BoundSymbol) -> BoundSymbol:
        if Tag.BACKWARD not in bound.symbol.tags:
            return bound
        residuals, cotangents, _ = bound.args
        output = tuple([item if item is not None and item.name in used else None for item in bound.output])
        wanted = tuple([item is not None for item in output])
        return replace(bound, args=(residuals, cotangents, wanted), output=output)

    return trace.with_symbols(map(narrowed, trace.symbols), trace.provenance)


def _read(trace: Trace) -> set[str]:
    """Names of the values that ops read, or that the trace returns."""
    read = {proxy.name for bound in trace.symbols for proxy in bound.inputs()}
    return read | {item.name for item in trace.output if item is not None}
