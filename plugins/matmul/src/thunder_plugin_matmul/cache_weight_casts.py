"""Casts of weights are cached from one call to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.rewrite import Lines, Rule, rewrite
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.plugins import TransformOptions
from thunder_core.pytorch_internals import version_of


class KeptConversions:
    """The last conversion of each tensor to each dtype, as long as the tensor lives."""

    def __init__(self) -> None:
        self._kept: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def converted(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """``tensor.to(dtype)``, computed again when PyTorch's version counter or the address says that it changed."""
        if tensor.is_inference():  # has no version counter
            return tensor.to(dtype)
        conversions = self._kept.setdefault(tensor, {})
        state = version_of(tensor), tensor.data_ptr()
        known = conversions.get(dtype)
        if known is None or known[0] != state:
            with torch.inference_mode(False), torch.no_grad():
                # with the memory itself, so that no other tensor gets its address meanwhile
                known = conversions[dtype] = state, tensor.to(dtype), tensor.untyped_storage()
        result: torch.Tensor = known[1]
        return result


@dataclass(frozen=True)
class CacheWeightCasts(Transform):
    """Converts parameters and buffers once, not in each call, in programs without a backward: inference under autocast.

    It is for those who can promise that weights are written by PyTorch's in-place operations only: optimizers,
    ``load_state_dict``, ``parameter.add_`` and the like, which their version counters count. Writes that go past these
    are not noticed: through ``parameter.data``, NumPy, another library, a captured graph. The conversions need memory
    of their own.
    """

    name: ClassVar[str] = "cache_weight_casts"
    place: ClassVar[Place] = Place.PARTITIONED

    _symbol: Symbol = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        function: Callable[..., Any] = KeptConversions().converted
        object.__setattr__(self, "_symbol", Symbol("kept_conversion", function, tags=frozenset({Tag.LOCAL})))

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        if context.phase is not Phase.INFERENCE:
            return trace
        fixed = Aliases.of(trace).fixed()

        def pattern(line: BoundSymbol) -> Iterator[Lines]:
            if not line.is_cast() or line.is_recorded(trace.context) or line.args[0].name not in context.static:
                return
            if line.output.storage not in fixed and line.output.name not in context.keep:
                yield Lines((line,))

        def replacement(match: Lines) -> tuple[BoundSymbol, ...]:
            (line,) = match.lines
            # an effect: as far as anybody else can tell, its arguments do not determine its result
            return (replace(line, symbol=self._symbol, effects=Effects(external=True)),)

        return rewrite(trace, [Rule(pattern, replacement)], self.name)


def from_options(options: TransformOptions) -> CacheWeightCasts:
    """The transform of a configuration; it has no options."""
    return CacheWeightCasts()
