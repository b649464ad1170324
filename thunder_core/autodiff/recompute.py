"""What may be computed again for backward, and at what price."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from thunder_core.autodiff.memory import element_bytes
from thunder_core.errors import OptionError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.passes.proxies import outputs_of, tensor_inputs_of, tensor_outputs_of


class Work(enum.IntEnum):
    """How much a line does, as far as its tags, its effects and its types tell."""

    VIEW = 0  # its results lie in memory of its arguments
    ELEMENTWISE = 1  # moves, makes or converts elements, or computes each from a few others
    PASS = 2  # reads its arguments a few times: reductions, normalizations, indexing
    CONTRACTION = 3  # computes more than it reads; and everything of which nothing is known
    ONCE = 4  # never again: random, with effects, of unknown code, or with results that are no tensors


_WORK_OF_TAGS: Final = (
    (Work.ONCE, frozenset({Tag.HIGHER_ORDER, Tag.LOCAL})),
    (Work.CONTRACTION, frozenset({Tag.MATMUL, Tag.ATTENTION})),
    (Work.PASS, frozenset({Tag.REDUCTION, Tag.NORMALIZATION, Tag.INDEXING, Tag.LOSS})),
    (Work.ELEMENTWISE, frozenset({Tag.ELEMENTWISE, Tag.SHAPE, Tag.CREATION})),
)

# Conversions have no tag of their own, and PyTorch tags `pointwise` only what computes.
_CONVERSIONS: Final = frozenset({torch.Tensor.to})
_MOVING_OPERATORS: Final = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        "_to_copy", "_unsafe_view", "as_strided_scatter", "cat", "constant_pad_nd", "copy", "diagonal_scatter", "flip",
        "repeat", "roll", "select_scatter", "slice_scatter", "stack", "tril", "triu",
    )
)  # fmt: skip

_LAUNCH_BYTES: Final = 8 << 20
"""What a call costs besides its work, as traffic: two microseconds between two kernels at 4 TB/s."""

_OPERATIONS_PER_BYTE: Final = 200
"""Floating-point operations in the time in which one byte is moved: 300-600 TFLOP/s against 2-4 TB/s."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be computed again, and the bytes that doing so must save.

    Attributes:
        free: the most work that costs nothing.
        limit: the most work that is done again.
        weight: bytes that must be saved for each byte of cost (see `cost`) of the work above ``free``.
    """

    free: Work
    limit: Work
    weight: float = 0.0

    def price(self, line: BoundSymbol, work: Work) -> int | None:
        """Bytes that running the line again must save; None when it may not run again."""
        if work > self.limit:
            return None
        return 0 if work <= self.free else math.ceil(self.weight * cost(line, work))


@dataclass(frozen=True, slots=True)
class Budget:
    """Save at most ``fraction`` of the bytes that the default policy saves, if any choice does."""

    fraction: float


DEFAULT: Final = "cheap"

POLICIES: Final = {
    "none": Policy(Work.VIEW, Work.VIEW),
    # Without fusion, a line that runs again costs its traffic: saving its result would have cost backward nothing. With
    # a weight of one half, a line is run again only when it writes more than it reads, by more than a launch is worth:
    # masks, conversions to wider types, expanded copies. By arithmetic, for a layer of Llama-2-7B (8,192 tokens in
    # bfloat16, 16 ms at 600 TFLOP/s): those are the float copies in two norms, 0.1 ms at 4 TB/s. A weight of one third
    # would add the activation, and cross 1 %.
    "cheap": Policy(Work.VIEW, Work.ELEMENTWISE, 1 / 2),
    # Elementwise lines are as good as free once they are fused. The weight of the others keeps small statistics (a mean
    # and a variance for each row of a normalization) from being computed again from all that they summarize. That
    # elementwise lines cost nothing also guarantees that no more is saved than by "cheap".
    "aggressive": Policy(Work.ELEMENTWISE, Work.PASS, 1 / 64),
}


def everything(weight: float) -> Policy:
    """All that can run again may, at one price for a byte; what is saved grows with ``weight``."""
    return Policy(Work.VIEW, Work.CONTRACTION, weight)


def parse_policy(value: str | Mapping[str, float]) -> Policy | Budget:
    """The policy that an option means: a name of `POLICIES`, or ``{"budget": fraction}``.

    Raises OptionError for anything else.
    """
    if isinstance(value, str) and value in POLICIES:
        return POLICIES[value]
    if isinstance(value, Mapping) and value.keys() == {"budget"}:
        fraction = value["budget"]
        if isinstance(fraction, int | float) and fraction >= 0:
            return Budget(float(fraction))
    names = ", ".join(repr(name) for name in POLICIES)
    raise OptionError(
        f"recompute={value!r} is no policy",
        advice=(f"Pass {names}, or {{'budget': f}} with a number f of at least 0.",),
    )


def cost(line: BoundSymbol, work: Work) -> int:
    """Time that the line takes, in bytes that the device could move meanwhile."""
    read = {proxy.name: proxy for proxy in tensor_inputs_of(line)}
    tensors = [*read.values(), *fresh_outputs(line)]
    time = _LAUNCH_BYTES + sum(map(element_bytes, tensors))
    return time + _operations(tensors) // _OPERATIONS_PER_BYTE if work is Work.CONTRACTION else time


def fresh_outputs(line: BoundSymbol) -> list[TensorProxy]:
    """The tensors that a line defines in memory of their own."""
    shared = {proxy.storage for proxy in tensor_inputs_of(line)}
    return [proxy for proxy in tensor_outputs_of(line) if proxy.storage not in shared]


def work_of(line: BoundSymbol) -> Work:
    """How much the line does."""
    if not line.effects.pure or not all(isinstance(proxy, TensorProxy) for proxy in outputs_of(line)):
        return Work.ONCE
    work = _work_of_symbol(line.symbol)
    if work is Work.ONCE:
        return work
    if not tensor_inputs_of(line):
        return Work.ELEMENTWISE  # it makes elements out of nothing
    return work if fresh_outputs(line) else Work.VIEW


@cache
def _contractions() -> frozenset[Any]:
    """PyTorch's operators that compute more than they move: those whose operations it counts."""
    from torch.utils.flop_counter import flop_registry

    return frozenset(flop_registry)


def _work_of_symbol(symbol: Symbol) -> Work:
    """How much a symbol does, if its calls are pure and make new tensors."""
    for work, tags in _WORK_OF_TAGS:
        if not tags.isdisjoint(symbol.tags):
            return work
    target = symbol.target
    if isinstance(target, torch._ops.OpOverload):
        return _work_of_operator(target)
    return Work.ELEMENTWISE if target in _CONVERSIONS else Work.CONTRACTION


def _work_of_operator(operator: torch._ops.OpOverload) -> Work:
    packet, tags = operator.overloadpacket, operator.tags
    if torch.Tag.pointwise in tags or packet in _MOVING_OPERATORS:
        return Work.ELEMENTWISE
    known = torch.Tag.reduction in tags or torch.Tag.core in tags
    return Work.PASS if known and packet not in _contractions() else Work.CONTRACTION


def _operations(tensors: Iterable[TensorProxy]) -> int:
    """Floating-point operations of a contraction that reads and writes ``tensors``.

    A product of matrices does ``2 m k n``, and ``m k n`` is the root of the product of the three sizes ``m k``, ``k n``
    and ``m n``. For attention, convolutions and batches this is right within a factor of ten.
    """
    sizes = sorted(element_bytes(tensor) // tensor.dtype.itemsize for tensor in tensors)
    return 2 * math.isqrt(math.prod(sizes[-3:])) if len(sizes) >= 3 else 0
