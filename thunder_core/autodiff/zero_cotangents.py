"""Backward for the case that some outputs got no cotangent, or that some gradients are not asked for."""

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
    """Specialises a backward program.

    A backward program is linear in its cotangents. So a line all of whose cotangent-dependent arguments are zero gives
    zero and goes away; a sum with a zero is its other argument; hooks and functions of the user's see None; elsewhere a
    zero is made where a line needs one. Sums are recognised as what backward programs add cotangents with. Hooks are
    called on the way to gradients that somebody asks for, and executors' backward is asked for those alone. The inputs
    are the cotangents that are there, and of the saved values those that are left to read.

    Attributes:
        cotangents: names of all cotangents.
        absent: names of those that are zero.
        unwanted: positions of gradients that nobody asks for.
    """

    name: ClassVar[str] = "ZeroCotangents"

    cotangents: frozenset[str]
    absent: frozenset[str] = frozenset()
    unwanted: frozenset[int] = frozenset()

    def run(self, trace: Trace, context: PassContext) -> Trace:
        walk = _Walk(self.cotangents, self.absent)
        for bound in trace.symbols:
            walk.line(bound)
        output = tuple(
            [
                None if index in self.unwanted or item is None or item.name in walk.zero else walk.value(item)
                for index, item in enumerate(trace.output)
            ]
        )
        lines = _without_idle_hooks(walk.lines, output)
        left = _without_unused(without_dead_code(replace(trace.with_symbols(lines, self.name), output=output)))
        given = self.cotangents - self.absent
        needed = given | (_read(left) - self.cotangents)
        return replace(left, inputs=tuple([proxy for proxy in trace.inputs if proxy.name in needed]))


class _Walk:
    """One walk over the backward program.

    Attributes:
        dependent: values that depend on a cotangent.
        zero: those of them that are zero.
        lines: what is left.
    """

    def __init__(self, cotangents: frozenset[str], absent: frozenset[str]) -> None:
        self.dependent = set(cotangents)
        self.zero = set(absent)
        self.lines: list[BoundSymbol] = []
        self._replaced: dict[str, Any] = {}
        self._sum = registry.resolve(torch.add, (0, 0), {})[0]

    def value(self, leaf: Any) -> Any:
        """What stands for a value now."""
        return self._replaced.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

    def line(self, bound: BoundSymbol) -> None:
        """Keep, simplify or drop one line."""
        inputs = {proxy.name for proxy in bound.inputs()} & self.dependent
        outputs = bound.outputs()
        if not inputs:
            self.lines.append(bound)
            return
        self.dependent.update(proxy.name for proxy in outputs)
        zeros = inputs & self.zero
        if zeros == inputs:
            self.zero.update(proxy.name for proxy in outputs)
        elif zeros and bound.symbol is self._sum and len(bound.args) == 2 and not bound.kwargs:
            (kept,) = [item for item in bound.args if getattr(item, "name", None) not in zeros]
            self._replaced[outputs[0].name] = self.value(kept)
        elif Tag.HOOK in bound.symbol.tags:
            self._hooks(bound)
        elif Tag.PARTIAL in bound.symbol.tags:
            self.lines.append(bound.map_arguments(lambda leaf: self._present(self.value(leaf))))
        else:
            self._make(zeros, bound)
            self.lines.append(bound.map_arguments(self.value))

    def _hooks(self, bound: BoundSymbol) -> None:
        """A call of hooks, which see None for what is zero."""
        if Tag.COMPONENTWISE in bound.symbol.tags:
            pairs = zip(bound.args[1], bound.output, strict=True)
            self.zero.update(made.name for given, made in pairs if made is not None and self._present(given) is None)
        bound = bound.map_arguments(lambda leaf: self._present(self.value(leaf)))
        self.lines.append(replace(bound, output=map_leaves(self._present, bound.output)))

    def _present(self, leaf: Any) -> Any:
        return None if isinstance(leaf, TensorProxy) and leaf.name in self.zero else leaf

    def _make(self, names: set[str], bound: BoundSymbol) -> None:
        """Lines that make the zeros of these names."""
        for proxy in bound.inputs():
            if proxy.name in names & self.zero and isinstance(proxy, TensorProxy):
                kwargs = {"dtype": proxy.dtype, "device": proxy.device}
                symbol, args, kwargs = registry.resolve(torch.zeros, (tuple(proxy.shape),), kwargs)
                self.zero.discard(proxy.name)
                self.lines.append(BoundSymbol(symbol, args, kwargs, proxy, context=bound.context))


def _without_idle_hooks(lines: Sequence[BoundSymbol], output: tuple[Any, ...]) -> list[BoundSymbol]:
    """The lines but calls of hooks that nothing in ``output``, and no other effect, depends on."""
    live = {item.name for item in output if item is not None}
    kept = []
    for bound in reversed(lines):
        used = any(proxy.name in live for proxy in bound.outputs())
        if Tag.HOOK in bound.symbol.tags and not used:
            continue
        kept.append(bound)
        if used or not bound.effects.pure:
            live.update(proxy.name for proxy in bound.inputs())
    return kept[::-1]


def _without_unused(trace: Trace) -> Trace:
    """The trace where executors' backward is asked only for gradients that are used."""
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
    """Names of the values that lines take, or that the trace returns."""
    read = {proxy.name for bound in trace.symbols for proxy in bound.inputs()}
    return read | {item.name for item in trace.output if item is not None}
