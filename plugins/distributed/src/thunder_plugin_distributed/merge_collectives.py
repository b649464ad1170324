"""Communicate a sum instead of its terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, ClassVar, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.rewrite import Match, Rule, rewrite
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.pytorch_internals import c10d_functional as functional

_REDUCTIONS: Final = (functional.all_reduce.default, functional.reduce_scatter_tensor.default)
_LINEAR: Final = ("sum", "avg")
"""The operations of reductions that are linear."""


@dataclass(frozen=True)
class MergeCollectives(Transform):
    """Computes ``collective(x + y)`` in place of ``collective(x) + collective(y)``.

    All-gathers are linear, and all-reduces and reduce-scatters that sum or average are. Column-wise parallel layers
    that read one tensor each reduce its gradient, such as the query, key and value projections of an attention; with
    this transform the sum of these gradients is reduced. It is rounded in another order than in eager PyTorch. All
    ranks run the same program, so all of them merge the same collectives.
    """

    name: ClassVar[str] = "merge_collectives"
    place: ClassVar[Place] = Place.AFTER_DIFFERENTIATION
    verified: ClassVar[bool] = False

    def applies(self, context: TransformContext) -> bool:
        return context.phase is Phase.JOINT and torch.distributed.is_available() and torch.distributed.is_initialized()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        before, merged = len(trace.symbols), None
        while merged is not trace:  # a sum of three is two sums
            trace, merged = rewrite(trace, [_rule(trace)], self.name), trace
        if len(trace.symbols) < before:
            count = (before - len(trace.symbols)) // 2  # each with its wait
            context.notes.append(f"{self.name}: {count} collectives less, because sums are communicated")
        return trace


@dataclass(frozen=True, slots=True)
class _Term:
    """The result of a linear collective, which one op reads."""

    start: BoundSymbol
    wait: BoundSymbol

    @property
    def kind(self) -> Any:
        """Equal for collectives of tensors of equal metadata, with equal options, in the same process group."""
        start, sent = self.start, self.start.args[0]
        options = start.symbol, start.args[1:], start.kwargs, start.context
        return *options, sent.shape, sent.stride, sent.dtype, sent.device, self.wait.output.stride


@dataclass(frozen=True, slots=True)
class _Sum(Match):
    """An addition of two terms, or of a term to the sum of another one and ``rest``; it is the last of ``ops``."""

    terms: tuple[_Term, _Term]
    rest: TensorProxy | None


def _rule(trace: Trace) -> Rule[_Sum]:
    builder = Builder.of(trace)
    add, wait = registry.symbol_of(torch.add), registry.symbol_of(functional.wait_tensor.default)
    gather = registry.symbol_of(functional.all_gather_into_tensor.default)
    reductions = [registry.symbol_of(each) for each in _REDUCTIONS]

    def computed(value: Any) -> BoundSymbol | None:
        """The op that computes a tensor; None if another number of ops than one reads it."""
        return trace.producer(value.name) if type(value) is TensorProxy and trace.use_count(value.name) == 1 else None

    def term(value: Any) -> _Term | None:
        op = computed(value)
        start = computed(op.args[0]) if op is not None and op.symbol is wait else None
        if op is None or start is None:
            return None
        linear = start.symbol is gather or (start.symbol in reductions and start.args[1] in _LINEAR)
        return _Term(start, op) if linear else None

    def operands(op: BoundSymbol | None) -> tuple[Any, Any] | None:
        if op is None or op.symbol is not add or op.kwargs or len(op.args) != 2:
            return None
        return op.args[0], op.args[1]

    def pattern(op: BoundSymbol) -> Iterator[_Sum]:
        for first, second in permutations(operands(op) or (), 2):
            last, other, inner = term(second), term(first), computed(first)
            if last is None:
                continue
            if other is not None and other.kind == last.kind and last.wait.output.stride == op.output.stride:
                yield _Sum((other.start, other.wait, last.start, last.wait, op), (other, last), None)
            for rest, value in permutations(operands(inner) or (), 2):
                other = term(value)
                if inner is None or other is None or other.kind != last.kind or type(rest) is not TensorProxy:
                    continue
                metadata = [(each.shape, each.dtype) for each in (rest, second, op.output)]
                if metadata[0] == metadata[1] == metadata[2] and inner.output.stride == op.output.stride:
                    ops = (other.start, other.wait, inner, last.start, last.wait, op)
                    yield _Sum(ops, (other, last), rest)

    def new(like: TensorProxy) -> TensorProxy:
        return replace(like, name=builder.name(like.name, numbered=True), storage=builder.new_storage(), offset=0)

    def replacement(match: _Sum) -> list[BoundSymbol]:
        (one, other), op = match.terms, match.ops[-1]
        total, sent = new(one.start.args[0]), new(one.start.output)
        result = op.output if match.rest is None else new(one.wait.output)
        ops = [
            replace(op, args=(one.start.args[0], other.start.args[0]), output=total),
            replace(one.start, args=(total, *one.start.args[1:]), output=sent, location=op.location),
            replace(one.wait, args=(sent,), output=result, location=op.location),
        ]
        return ops if match.rest is None else [*ops, replace(op, args=(match.rest, result))]

    return Rule(pattern, replacement)
