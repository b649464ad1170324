"""Constant folding: evaluate ops that do not depend on inputs during compilation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, TypeGuard

import torch

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import are_constant
from thunder_core.ir.storage_sizes import extent_bytes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, list_sizes, map_leaves
from thunder_core.passes.transform import Place, Transform, TransformContext


@dataclass(frozen=True)
class ConstantFolding(Transform):
    """Evaluates pure ops that depend on no input, outside of autograd and inference mode.

    A tensor that is returned, or whose storage is written or returned, is not folded: in eager each run creates a new
    one. Nor are values that the context protects (`PassContext.protected`). The values become constants of the context.

    Attributes:
        limit: largest size of a folded tensor, in bytes.
    """

    name: ClassVar[str] = "constant_folding"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION
    verified: ClassVar[bool] = False

    limit: int = 1 << 20

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        folder = _Folder(Aliases.of(trace).fixed(context.protected), self.limit)
        rest = [bound for bound in trace.symbols if not folder.fold(bound)]
        if len(rest) == len(trace.symbols):
            return trace
        uses = chain.from_iterable(map(tensor_inputs_of, rest))
        used = {proxy.name: proxy for proxy in uses if proxy.name in folder.values}
        context.constants.update({name: folder.values[name] for name in used})
        return replace(trace.with_symbols(rest, self.name), inputs=(*trace.inputs, *used.values()))


@dataclass
class _Folder:
    """Evaluates ops, except those with a result in one of the storages ``fixed``."""

    fixed: frozenset[int]
    limit: int
    values: dict[str, torch.Tensor] = field(default_factory=dict)

    def fold(self, bound: BoundSymbol) -> bool:
        """Evaluate the op if it is constant; return whether it is."""
        if not self._constant(bound):
            return False
        result = _evaluate(bound, self.values)
        proxies, values = list(iterate_leaves(bound.output)), list(iterate_leaves(result))
        if len(proxies) != len(values):
            return False
        self.values.update((p.name, v) for p, v in zip(proxies, values, strict=True) if isinstance(p, TensorProxy))
        return True

    def _constant(self, bound: BoundSymbol) -> bool:
        if not bound.effects.pure or Tag.HIGHER_ORDER in bound.symbol.tags or list_sizes((bound.args, bound.kwargs)):
            return False
        if any(proxy.name not in self.values for proxy in bound.inputs()):
            return False
        outputs = bound.outputs()
        return bool(outputs) and all(self._foldable(proxy) for proxy in outputs)

    def _foldable(self, proxy: Proxy) -> TypeGuard[TensorProxy]:
        if not isinstance(proxy, TensorProxy) or proxy.requires_grad or proxy.device.type == "meta":
            return False
        if proxy.storage in self.fixed:
            return False
        if not are_constant((*proxy.shape, *proxy.stride)):
            return False
        return extent_bytes(replace(proxy, offset=0)) <= self.limit


def _evaluate(bound: BoundSymbol, values: dict[str, torch.Tensor]) -> Any:
    def value(leaf: Any) -> Any:
        return values[leaf.name] if isinstance(leaf, PROXY_TYPES) else leaf

    args, kwargs = map_leaves(value, bound.args), map_leaves(value, bound.kwargs)
    with torch.inference_mode(False), torch.no_grad(), _Autocast(bound.context):
        return bound.symbol.target(*args, **kwargs)


class _Autocast:
    """Context manager that enters the autocast modes of a context; of None, it changes nothing."""

    def __init__(self, context: Context | None) -> None:
        self.modes = [torch.autocast(kind, dtype) for kind, dtype in context.autocast] if context else []

    def __enter__(self) -> None:
        for mode in self.modes:
            mode.__enter__()

    def __exit__(self, *exception: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*exception)
