"""The collectives of a program: the tensors that each op sends, its process group, and the op that waits for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import torch

from thunder.report.collectives_report import CollectiveReport
from thunder.report.operation_counts import count_operations
from thunder_core.autodiff.derivatives.derivative import PLAIN
from thunder_core.ir.annotation import SHORT_DTYPES
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.keys import call_key
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import as_constant
from thunder_core.ir.trace import Trace, bodies_of, derivatives_of, programs_of
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes.base import Phase
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket, schema_of
from thunder_core.tracing.trace_call import refuse_objects, trace_call
from thunder_core.tracing.tracer import Level
from thunder_plugin_distributed.recording.operations import EXCHANGE_OBJECTS, START, START_TOGETHER

_KINDS: Final = (
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send",
    "recv", "barrier",
)  # fmt: skip
_EVEN: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
_REDUCTIONS: Final = frozenset({"reduce_op", "operation", "op"})


@dataclass(frozen=True)
class Collective:
    """One call of a communicating operator in a program.

    Attributes:
        kind: ``all_reduce``, ``all_gather`` and the like; the name of the op for an unknown operator.
        symbol: the name of the symbol that the op calls.
        group: the name of the process group.
        tensors: shape and dtype of each tensor that the operator sends from this rank.
        reduction: the name of the reduction, such as ``sum``. Empty for a kind that does not reduce, or an operator of
            ``torch.ops.c10d`` that is called directly or in a coalescing manager: its argument is an object that
            cannot be read.
        even: whether the tensors must have equal numbers of elements on all ranks, and in each run.
        location: the user's line.
        varies: whether the number of elements, equal on all ranks, varies between runs.
    """

    kind: str
    symbol: str
    group: str
    tensors: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    reduction: str = ""
    even: bool = False
    location: SourceLocation | None = None
    varies: bool = False

    @property
    def bytes(self) -> int:
        """The bytes of its tensors."""
        return sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in self.tensors)

    def sent(self, ranks: int) -> int:
        """The bytes that each of ``ranks`` sends with ring algorithms; their mean for collectives with a root."""
        if self.kind in ("send", "recv", "barrier"):
            return self.bytes if self.kind == "send" else 0
        if self.kind == "all_gather":
            return self.bytes * (ranks - 1)
        rounds = 2 if self.kind == "all_reduce" else 1
        return rounds * self.bytes * (ranks - 1) // ranks

    def describe(self) -> str:
        """A description such as ``all_reduce 'sum' of f32[2, 4] (program.py:5 in f: dist.all_reduce(y))``."""
        shown = [f"{SHORT_DTYPES.get(dtype, dtype)}{list(shape)}" for shape, dtype in self.tensors]
        if len(shown) > 3:
            shown[3:] = [f"{len(shown) - 3} more"]
        text = f"{self.kind} {self.reduction!r}" if self.reduction else self.kind
        text += f" of {', '.join(shown)}" if shown else ""
        return text if self.location is None else f"{text} ({self.location.describe()})"


@dataclass(frozen=True)
class Issue:
    """An op that starts communication.

    Attributes:
        collectives: the collectives that it starts, in order.
        index: its position among the ops of its trace.
        wait: the position of the first op that waits for one of its results; None if there is none.
        between: the ops that compute between these positions.
        inside: whether the op, ``wait`` and ``between`` belong to a program that the op at ``index`` runs.
    """

    collectives: tuple[Collective, ...]
    index: int
    wait: int | None
    between: tuple[BoundSymbol, ...]
    inside: bool = False


def issues_of_programs(programs: Mapping[Phase, Trace]) -> Iterator[tuple[Phase, Issue]]:
    """The communicating ops of the programs that run, in order."""
    derivatives: dict[str, Trace] = {}
    for phase, trace in programs.items():
        for issue in issues_of(trace, derivatives):
            yield phase, issue
        derivatives |= derivatives_of(trace)


def issues_of(trace: Trace, derivatives: Mapping[str, Trace] = MappingProxyType({})) -> Iterator[Issue]:
    """The communicating ops of a trace and of its bodies, in the order in which they run.

    Args:
        derivatives: the backward programs of autograd graphs that forward recorded, by the name of the graph.
    """
    ops = trace.symbols
    for index, op in enumerate(ops):
        recorded = [derivatives[proxy.name] for proxy in op.inputs() if proxy.name in derivatives]
        if not (recorded or op.effects.groups):
            continue
        bodies = recorded or programs_of(op.symbol)[:1] or bodies_of(op)
        for body in bodies:
            yield from _inside(body, index)
        if bodies:
            continue
        wait = _wait_of(ops, index)
        between = () if wait is None else tuple([other for other in ops[index + 1 : wait] if not _is_apart(other)])
        yield Issue(collectives_of(op), index, wait, between)


def _inside(body: Trace, index: int) -> Iterator[Issue]:
    for issue in issues_of(body):
        yield replace(issue, index=index, inside=True)


def collectives_of(op: BoundSymbol) -> tuple[Collective, ...]:
    """The collectives of an op: the communicating operators that it calls when it runs on fake tensors.

    Dynamic sizes have the values of the call for which the program was recorded. An op that cannot run on fake tensors
    counts as one collective of unknown kind, with the tensors among its arguments.
    """
    if op.varies():
        return tuple(
            [replace(each, even=False, varies=each.even) for each in collectives_of(op.with_sizes(as_constant))]
        )
    if op.symbol is EXCHANGE_OBJECTS:
        return (Collective(op.args[0], op.symbol.name, op.args[1], (), location=op.location),)
    if op.symbol is START:
        operator, written, *args = op.args
        return (_started(op, operator, written, tuple(args)),)
    if op.symbol is START_TOGETHER:
        return tuple([_started(op, operator, written, tuple(args)) for operator, written, *args in op.args[2:]])
    key = call_key(op, PLAIN)
    found = _ops(op) if key is None else _cache.get(key, lambda: _ops(op))
    return tuple([_collective(each, op) for each in found])


def collectives_of_programs(
    programs: Mapping[Phase, Trace], groups: Mapping[str, tuple[int, ...]]
) -> tuple[CollectiveReport, ...]:
    """The collectives of the programs of an entry; ``groups`` has the ranks of process groups by name."""
    return tuple(
        [
            CollectiveReport(
                phase.value,
                each.kind,
                each.symbol,
                None if each.location is None else each.location.place(),
                each.group,
                len(groups[each.group]),
                len(each.tensors),
                each.sent(len(groups[each.group])),
                None if issue.wait is None else len(issue.between),
                sum(count_operations(op) or 0 for op in issue.between),
            )
            for phase, issue in issues_of_programs(programs)
            for each in issue.collectives
        ]
    )


_cache: Final = BoundedCache[tuple[BoundSymbol, ...]](1024)


def _ops(op: BoundSymbol) -> tuple[BoundSymbol, ...]:
    """The communicating operators that an op calls; the op itself if that is unknown."""
    if _operator(op) is not None:
        return (op,)
    try:
        refuse_objects(op)
        trace = trace_call(op.symbol.target, op.args, op.kwargs, PLAIN, Level.ATEN)
    except Exception:  # noqa: BLE001 - the function does not support fake tensors: the op itself is returned
        return (op,)
    return tuple([op for op in trace.symbols if op.effects.groups]) or (op,)


def _operator(op: BoundSymbol) -> OpOverload | None:
    target = op.symbol.target
    if isinstance(target, OpOverloadPacket):
        target = getattr(target, target.overloads()[0])
    return target if isinstance(target, OpOverload) else None


def _collective(call: BoundSymbol, op: BoundSymbol) -> Collective:
    operator, kind, reduction = _operator(call), "", ""
    if operator is not None:
        names = [argument.name for argument in schema_of(operator).arguments]
        given = dict(zip(names, call.args, strict=False)) | call.kwargs
        # the argument of operators of torch.ops.c10d is an object that cannot be read
        reduction = next((value for name, value in given.items() if name in _REDUCTIONS and isinstance(value, str)), "")
        kind = _kind(operator)
    tensors = [leaf for leaf in iterate_leaves(call.args) if isinstance(leaf, TensorProxy)]
    group = call.effects.groups[0]
    metadata = tuple(map(_metadata, tensors))
    even = kind in _EVEN
    return Collective(kind or op.symbol.name, op.symbol.name, group, metadata, reduction, even, op.location)


def _started(op: BoundSymbol, operator: OpOverload, written: tuple[int, ...], args: tuple[Any, ...]) -> Collective:
    """The collective of an operator of ``torch.ops.c10d``, whose arguments include the tensors that it writes."""
    tensors = [leaf for leaf in iterate_leaves(args) if isinstance(leaf, TensorProxy)]
    sent = [tensor for place, tensor in enumerate(tensors) if place not in written] or tensors
    kind = _kind(operator)
    (group,) = op.effects.groups
    metadata = () if kind == "barrier" else tuple(map(_metadata, sent))
    name = schema_of(operator).name
    # lists of gathers and scatters may hold tensors of several sizes
    even = kind in _EVEN and ("base" in name or "tensor" in name or kind not in ("all_gather", "reduce_scatter"))
    reduction = op.kwargs.get("reduction", "")
    return Collective(kind or op.symbol.name, str(operator), group, metadata, reduction, even, op.location)


def _kind(operator: OpOverload) -> str:
    """The item of `_KINDS` for an operator; empty if there is none."""
    plain = re.sub("[^a-z]", "", schema_of(operator).name.partition("::")[2])
    return next((kind for kind in _KINDS if kind.replace("_", "") in plain), "")


def _metadata(tensor: TensorProxy) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(map(int, tensor.shape)), tensor.dtype


def _wait_of(ops: tuple[BoundSymbol, ...], index: int) -> int | None:
    names = {proxy.name for proxy in ops[index].outputs()}
    for position in range(index + 1, len(ops)):
        op = ops[position]
        if names.isdisjoint([proxy.name for proxy in op.inputs()]):
            continue
        return position
    return None


def _is_apart(op: BoundSymbol) -> bool:
    """Whether an op does not compute: it communicates, waits, or is a view."""
    return bool(op.effects.channels) or op.is_view()
