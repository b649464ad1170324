"""Masks of attention whose values are known when the program is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import are_constant
from thunder_core.ir.storage_sizes import extent_bytes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import list_sizes
from thunder_core.passes.checkpoint_regions import in_checkpoints
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.operations import with_strides
from thunder_core.passes.rewrite import Match, Rule, rewrite
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_plugin_composites.attention_calls import AttentionCall
from thunder_plugin_composites.attention_readers import steps_to_copy, with_readers


@dataclass(frozen=True)
class ConstantMasks(Transform):
    """Removes masks of attention that mask nothing, and replaces constant causal ones by ``is_causal``.

    Models that are written for compilers compute such masks from positions alone, with ``torch.arange``. Kernels are
    faster without a mask, and some do not support one. Masks that depend on an input, or on a size that varies between
    calls, are not changed. Checkpoint regions may read such a mask from outside.

    Rounding: another kernel may sum in another order. On a GPU, dropout draws the numbers that eager PyTorch draws for
    the call without the mask.

    Attributes:
        limit: largest size of a mask, and of each value that it is computed from, in bytes.
    """

    name: ClassVar[str] = "constant_masks"
    place: ClassVar[Place] = Place.BEFORE_CLAIMS
    verified: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ("recognize_composites",)

    limit: int = 1 << 28

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        return self._without_masks(trace, _Values(trace, self.limit, frozenset(context.protected)))

    def _without_masks(self, trace: Trace, values: _Values) -> Trace:
        """The trace, and the bodies of its checkpoints, which read masks from outside."""
        trace = in_checkpoints(trace, lambda body, free: self._without_masks(body, values.inside(body, free)))
        masks = {call.mask.name for call in map(_call, trace.symbols) if call and call.mask is not None}
        kinds = {name: kind for name in sorted(masks) if (kind := values.kind(name)) is not None}
        if not kinds:
            return trace
        removal = _Removal(trace, kinds)
        return without_dead_code(rewrite(trace, [Rule(removal.pattern, removal.replacement)], self.name))


@dataclass(frozen=True)
class _Masked(Match):
    """Attention and the operations that copy its result.

    Attributes:
        call: the attention without the mask.
    """

    call: AttentionCall


class _Removal:
    """The rule for one trace.

    Args:
        causal: for masks that are causal, or mask nothing, by name whether they are causal.
    """

    def __init__(self, trace: Trace, causal: Mapping[str, bool]) -> None:
        self.trace = trace
        self.causal = causal
        self.builder = Builder.of(trace)

    def pattern(self, op: BoundSymbol) -> Any:
        call = _call(op)
        causal = None if call is None or call.mask is None else self.causal.get(call.mask.name)
        if call is not None and causal is not None:
            steps = steps_to_copy(op.output, self.trace)
            call = replace(call, mask=None, causal=causal)
            yield _Masked((op, *steps), call)
            if steps:
                yield _Masked((op,), call)

    def replacement(self, match: _Masked) -> tuple[BoundSymbol, ...] | None:
        attention, *steps = match.ops
        call = match.call
        op = replace(
            attention,
            args=(call.query, call.key, call.value, None, call.dropout, call.causal),
            kwargs={"scale": call.scale, "enable_gqa": call.grouped},
        )
        function = F.scaled_dot_product_attention if steps else _WithStrides(attention.output.stride)
        return with_readers(function, op, steps, self.builder, self.trace.context)


@dataclass(frozen=True)
class _WithStrides:
    """Attention whose result has these strides."""

    stride: tuple[Any, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return with_strides(F.scaled_dot_product_attention(*args, **kwargs), self.stride)


def _call(op: BoundSymbol) -> AttentionCall | None:
    """A call of attention with a mask and without ``is_causal``; None for other operations."""
    if Tag.ATTENTION not in op.symbol.tags or op.symbol.target is not F.scaled_dot_product_attention:
        return None
    call = AttentionCall.of(*op.args, **op.kwargs)
    return call if isinstance(call.mask, TensorProxy) and call.causal is False else None


class _Values:
    """Evaluates masks of a trace that depend on no input of the program, and the tensors that they are computed from.

    Each tensor is evaluated at most once, when `kind` first needs it.

    Args:
        limit: as `ConstantMasks.limit`.
        protected: names of values that passes must not change: masks of these names stay.
        outside: for each input of a body, by name, the `_Values` of the trace around it, and the name there.
    """

    def __init__(
        self,
        trace: Trace,
        limit: int,
        protected: frozenset[str] = frozenset(),
        outside: Mapping[str, tuple[_Values, str]] = MappingProxyType({}),
    ) -> None:
        self._trace = trace
        self._limit = limit
        self._protected = protected
        self._outside = outside
        self._kinds: dict[str, bool | None] = {}
        self._found: dict[str, torch.Tensor | None] = {}

    def inside(self, body: Trace, free: Sequence[Proxy]) -> _Values:
        """The same for the body of a checkpoint region that reads the tensors ``free`` of this trace."""
        outside = {inner.name: (self, outer.name) for inner, outer in zip(body.inputs, free, strict=True)}
        return _Values(body, self._limit, self._protected, outside)

    def kind(self, name: str) -> bool | None:
        """`_kind` of a mask; None for one that depends on an input, too, or that exceeds the limit."""
        values, name = self._origin(name)
        if name not in values._kinds:
            value = None if name in values._protected else values._value(name)
            values._kinds[name] = None if value is None else _kind(value)
        return values._kinds[name]

    def _origin(self, name: str) -> tuple[_Values, str]:
        """The trace that computes a value, and the name there."""
        values = self
        while name in values._outside:
            values, name = values._outside[name]
        return values, name

    def _value(self, name: str) -> torch.Tensor | None:
        values, name = self._origin(name)
        if name not in values._found:
            values._found[name] = values._evaluated(name)
        return values._found[name]

    def _evaluated(self, name: str) -> torch.Tensor | None:
        """The value; None if it depends on an input, or if a value on the way exceeds the limit."""
        needed, ops, outputs = {name}, list[BoundSymbol](), list[Proxy]()
        for op in reversed(self._trace.symbols):
            results = [proxy for proxy in op.outputs() if proxy.name in needed]
            if not results:
                continue
            if not op.effects.pure or Tag.HIGHER_ORDER in op.symbol.tags or list_sizes((op.args, op.kwargs)):
                return None
            if not all(_fits(one, self._limit) for one in op.outputs()):
                return None
            needed.update(proxy.name for proxy in op.inputs())
            needed.difference_update(proxy.name for proxy in op.outputs())
            outputs += [proxy for proxy in results if proxy.name == name]
            ops.append(op)
        if not outputs or not needed <= self._outside.keys():
            return None
        inputs = [proxy for proxy in self._trace.inputs if proxy.name in needed]
        given = [self._value(proxy.name) for proxy in inputs]
        if any(value is None for value in given):
            return None
        symbols = tuple(reversed(ops))
        program = replace(self._trace, name="mask", inputs=tuple(inputs), symbols=symbols, output=tuple(outputs))
        with torch.inference_mode(False), torch.no_grad():
            (value,) = compile_trace(program)(*given)
        return value  # type: ignore[no-any-return]


def _fits(value: Proxy, limit: int) -> bool:
    if not isinstance(value, TensorProxy) or not are_constant((*value.shape, *value.stride)):
        return False
    return extent_bytes(replace(value, offset=0)) <= limit and value.device.type != "meta"


def _kind(mask: torch.Tensor) -> bool | None:
    """False for a mask that masks nothing, True for a causal one of as many queries as keys, None for others.

    In a mask that is added to the scores, the least number of its dtype masks, too: models use it for minus infinity,
    and in a causal mask each query sees a key.
    """
    shown, masked = (mask, ~mask) if mask.dtype is torch.bool else (mask == 0, mask <= torch.finfo(mask.dtype).min)
    if bool(shown.all()):
        return False
    if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2] or not bool((shown ^ masked).all()):
        return None
    square = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
    return True if bool((shown == square).all()) else None
