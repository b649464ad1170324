"""Reduce a sum instead of its terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, ClassVar, Final

import torch

from thunder_core.autodiff.derivatives.derivative import sum_stand_in
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.rewrite import Match, Rule, rewrite
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.pytorch_internals import c10d_functional as functional

_LINEAR: Final = ("sum", "avg")
"""The operations of all-reduces that are linear."""


@dataclass(frozen=True)
class MergeCollectives(Transform):
    """Computes ``all_reduce(x + y)`` in place of ``all_reduce(x) + all_reduce(y)``, of floating-point tensors.

    Column-wise parallel layers that read one tensor each reduce its gradient, such as the query, key and value
    projections of an attention; with this transform the sum of these gradients is reduced. It is rounded in another
    order than in eager PyTorch, and in float16 it can overflow where its terms do not.

    Ranks must merge the same collectives. All-reduces have tensors of one shape on all ranks, and the programs around
    them are equal. Reduce-scatters and all-gathers stay: only the ranks that pad their shard remove the padding.
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
            context.notes.append(f"{self.name}: {count} collectives less, because sums are reduced")
        return trace


@dataclass(frozen=True, slots=True)
class _Term:
    """The result of a linear all-reduce, which one op reads."""

    start: BoundSymbol
    wait: BoundSymbol

    @property
    def kind(self) -> Any:
        """Equal for tensors of equal shape, dtype and device, with equal options, in the same process group."""
        start, sent = self.start, self.start.args[0]
        options = start.args[1:], start.kwargs, start.context
        return *options, sent.shape, sent.dtype, sent.device, self.wait.output.stride


@dataclass(frozen=True, slots=True)
class _Sum(Match):
    """An addition of two terms, or of a term to the sum of another one and ``rest``; it is the last of ``ops``."""

    terms: tuple[_Term, _Term]
    rest: TensorProxy | None


def _rule(trace: Trace) -> Rule[_Sum]:
    builder = Builder.of(trace)
    add, wait = registry.symbol_of(torch.add), registry.symbol_of(functional.wait_tensor.default)
    all_reduce = registry.symbol_of(functional.all_reduce.default)

    def computed(value: Any) -> BoundSymbol | None:
        """The op that computes a tensor; None if another number of ops than one reads it."""
        return trace.producer(value.name) if type(value) is TensorProxy and trace.use_count(value.name) == 1 else None

    def term(value: Any) -> _Term | None:
        op = computed(value)
        start = computed(op.args[0]) if op is not None and op.symbol is wait else None
        if op is None or start is None or start.symbol is not all_reduce or start.args[1] not in _LINEAR:
            return None
        dtype = start.args[0].dtype  # averages of integers are rounded
        return _Term(start, op) if dtype.is_floating_point or dtype.is_complex else None

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
        terms = one.start.args[0], other.start.args[0]
        total = sum_stand_in(*terms, builder.name(terms[0].name, numbered=True), builder.new_storage())
        sent = new(one.start.output)
        result = op.output if match.rest is None else new(one.wait.output)
        ops = [
            replace(op, args=terms, output=total),
            replace(one.start, args=(total, *one.start.args[1:]), output=sent, location=op.location),
            replace(one.wait, args=(sent,), output=result, location=op.location),
        ]
        return ops if match.rest is None else [*ops, replace(op, args=(match.rest, result))]

    return Rule(pattern, replacement)
