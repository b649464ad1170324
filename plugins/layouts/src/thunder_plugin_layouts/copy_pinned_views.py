"""Copies of tensors that attention saves, if only they keep a larger storage alive for backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import hint_of
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.rewrite import Match, Rule, rewrite
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_core.tracing.trace_call import rewritten_form

_COPIES: Final = frozenset({Tag.SHAPE, Tag.COPY, Tag.SUM})


@dataclass(frozen=True)
class CopyPinnedViews(Transform):
    """Copies a query, key or value that is a view of a storage of at least twice its size, which forward then frees.

    This applies if backward needs nothing else of the storage. Usually this is the value, a part of the result of one
    matmul for query, key and value, which rotary embeddings do not change: in each layer of TinyLlama (4 x 2048 tokens,
    bfloat16) 4 MiB are saved instead of 40 MiB.
    """

    name: ClassVar[str] = "copy_pinned_views"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION
    verified: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ("constant_folding",)

    def applies(self, context: TransformContext) -> bool:
        return context.fuses()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The trace with copies; inputs and outputs are not changed."""
        pinning = _Pinning(trace)
        return rewrite(trace, [Rule(pinning.pattern, pinning.replacement)], self.name)


@dataclass(frozen=True, slots=True)
class _Attention(Match):
    """Attention that is differentiated.

    Attributes:
        pinned: whether each of query, key and value alone keeps a larger storage alive for backward.
    """

    pinned: tuple[bool, ...]


class _Pinning:
    """The rule for one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def pattern(self, op: BoundSymbol) -> Iterator[_Attention]:
        pinned = _pinned_by(op, self.trace) if _keeps_arguments(op) else ()
        if any(pinned):
            yield _Attention((op,), pinned)

    def replacement(self, match: _Attention) -> tuple[BoundSymbol, ...] | None:
        """Attention with copies; None if its result would have other strides."""
        (attention,) = match.ops
        try:
            form = rewritten_form(attention, _Copied(attention.symbol, match.pinned), self.trace.context)
        except LoweringError:
            return None
        return self._builder.inline(form, attention)

    @cached_property
    def _builder(self) -> Builder:
        return Builder.of(self.trace)


def _keeps_arguments(op: BoundSymbol) -> bool:
    """Whether an operation is attention that is differentiated."""
    return Tag.ATTENTION in op.symbol.tags and any(proxy.requires_grad for proxy in tensor_inputs_of(op))


def _pinned_by(attention: BoundSymbol, trace: Trace) -> tuple[bool, ...]:
    """Whether each of query, key and value alone keeps a larger storage alive for backward."""
    arguments = attention.args[:3]
    if len(arguments) != 3 or not all(isinstance(one, TensorProxy) and one.ndim == 4 for one in arguments):
        return ()
    return tuple([_is_pinned(attention, argument, arguments, trace) for argument in arguments])


def _is_pinned(attention: BoundSymbol, argument: TensorProxy, arguments: Sequence[TensorProxy], trace: Trace) -> bool:
    storage, aliases = argument.storage, Aliases.of(trace)
    if not argument.requires_grad or storage in aliases.given | aliases.escaping:  # other values keep it alive
        return False
    definitions = aliases.definitions(storage)
    created = [proxy for index, proxy in definitions if not trace.symbols[index].is_view()]
    whole, *parts = [hint_of(one.numel) for one in (*created, *arguments) if one.storage == storage]
    if len(created) != 1:
        return False
    readers = [trace.symbols[index] for index in aliases.readers(storage)]
    others = [reader for reader in readers if reader is not attention and not reader.is_view()]
    return 2 * sum(parts) <= whole and all(_keeps_nothing(reader, storage) for reader in others)


def _keeps_nothing(reader: BoundSymbol, storage: int) -> bool:
    """Whether backward of an operation saves nothing of a storage that it reads, like that of a copy or a sum.

    Assumed for functions of one tensor, such as the negation in rotary embeddings; if this is wrong, a copy saves
    nothing.
    """
    if not reader.effects.pure:
        return False
    if reader.symbol.tags & _COPIES:
        return True
    others = [proxy for proxy in tensor_inputs_of(reader) if proxy.storage != storage]
    return Tag.ELEMENTWISE in reader.symbol.tags and not any(one.requires_grad for one in others)


@dataclass(frozen=True)
class _Copied:
    """Attention with copies of some arguments ``(batch, positions, heads, size)``; equal ones are recorded once."""

    attention: Symbol
    pinned: tuple[bool, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first = [
            tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2) if pinned else tensor
            for tensor, pinned in zip(args, self.pinned)
        ]
        return self.attention.target(*first, *args[len(first) :], **kwargs)
