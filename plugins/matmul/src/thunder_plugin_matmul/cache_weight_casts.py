"""Caching of casts of weights across calls."""

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
from thunder_core.passes.rewrite import Match, Rule, rewrite
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.pytorch_internals import version_of


class CachedCasts:
    """The last cast of each tensor to each dtype, as long as the tensor lives."""

    def __init__(self) -> None:
        self._casts: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """``tensor.to(dtype)``, computed again if the version counter or the address of the tensor has changed."""
        if tensor.is_inference():  # inference tensors have no version counter
            return tensor.to(dtype)
        casts_of_tensor = self._casts.setdefault(tensor, {})
        state = version_of(tensor), tensor.data_ptr()
        known = casts_of_tensor.get(dtype)
        if known is None or known[0] != state:
            with torch.inference_mode(False), torch.no_grad():
                # with the storage, so that no other tensor gets its address in the meantime
                known = casts_of_tensor[dtype] = state, tensor.to(dtype), tensor.untyped_storage()
        result: torch.Tensor = known[1]
        return result


@dataclass(frozen=True)
class CacheWeightCasts(Transform):
    """Casts parameters and buffers once instead of in each call, in programs without a backward (autocast inference).

    It requires that weights are written only by PyTorch's in-place operations (optimizers, ``load_state_dict``,
    ``parameter.add_``), which increment their version counters. Other writes are not detected: through
    ``parameter.data``, NumPy, other libraries, or a captured graph. The casts need additional memory.
    """

    name: ClassVar[str] = "cache_weight_casts"
    place: ClassVar[Place] = Place.PARTITIONED
    verified: ClassVar[bool] = False

    _symbol: Symbol = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        function: Callable[..., Any] = CachedCasts().cast
        object.__setattr__(self, "_symbol", Symbol("cached_cast", function, tags=frozenset({Tag.LOCAL})))

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        if context.phase is not Phase.INFERENCE:
            return trace
        fixed = Aliases.of(trace).fixed()

        def pattern(op: BoundSymbol) -> Iterator[Match]:
            if not op.is_cast() or op.is_recorded(trace.context) or op.args[0].name not in context.persistent:
                return
            if op.output.storage not in fixed and op.output.name not in context.protected:
                yield Match((op,))

        def replacement(match: Match) -> tuple[BoundSymbol, ...]:
            (op,) = match.ops
            # an effect, because the result does not only depend on the arguments
            return (replace(op, symbol=self._symbol, effects=Effects(external=True)),)

        return rewrite(trace, [Rule(pattern, replacement)], self.name)
