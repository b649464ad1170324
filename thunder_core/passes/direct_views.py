"""Chains of views, each as one call that goes to the memory at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import torch

from thunder_core.executors.executor import Executor, fusing
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.operations import reinterpreted
from thunder_core.passes.transform import Place, Transform, TransformContext

_PRODUCTS: Final = frozenset({Tag.PRODUCT, Tag.LINEAR, Tag.ACCUMULATION})
_SYMBOL: Final = Symbol(".".join(import_path(reinterpreted) or ()), reinterpreted, tags=frozenset({Tag.SHAPE}))


@dataclass(frozen=True)
class DirectViews(Transform):
    """Makes views by size, stride and offset instead of by the calls that led to them.

    A call that makes a view costs more than a microsecond on the host (`torch.split` ten), and a backward of linear
    layers has four for each weight. The one that takes their place, which Inductor's programs call too, asks no
    dispatcher and costs half of the cheapest. A training step of a Llama of 8 small layers on a CPU took a tenth less
    time for it.

    It believes what the trace says of the memory that it looks at, so it is used only where that is known: for what
    the guards or the bridge have seen, for results of regions, whose strides are checked, and for products of
    matrices. Not for what autograd records, what is written, and what the program returns.
    """

    name: ClassVar[str] = "direct_views"
    place: ClassVar[Place] = Place.CLAIMED

    def applies(self, context: TransformContext) -> bool:
        return context.fuses()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        fusion = fusing(context.executors)
        roots: dict[str, TensorProxy] = {}
        aliases = Aliases.of(trace)
        for proxy in trace.inputs:
            if proxy.name not in context.unsure and isinstance(proxy, TensorProxy):
                roots[proxy.name] = proxy
        lines: list[BoundSymbol] = []
        for line in trace.symbols:
            found = _roots(line, roots)
            if found is None:
                roots.update({proxy.name: proxy for proxy in _sure(line, fusion)})
                lines.append(line)
                continue
            roots.update(found)
            direct = [proxy for proxy in line.outputs() if proxy.name in found and proxy.name not in aliases.visible]
            fits = found and len(direct) == len(found) and not line.is_recorded(trace.context)
            if not fits or any(proxy.storage in aliases.written for proxy in found.values()):
                lines.append(line)
            else:
                lines += [_direct(line, proxy, found[proxy.name]) for proxy in direct if isinstance(proxy, TensorProxy)]
        return without_dead_code(trace.with_symbols(lines, self.name))


def unsure_results(trace: Trace, executors: Sequence[Executor]) -> frozenset[str]:
    """Names of values that the trace computes and whose strides may be others than it says."""
    fusion = fusing(executors)
    sure = {proxy.name for line in trace.symbols for proxy in _sure(line, fusion)}
    return frozenset([proxy.name for line in trace.symbols for proxy in line.outputs() if proxy.name not in sure])


def _sure(line: BoundSymbol, fusion: frozenset[str]) -> list[TensorProxy]:
    """The results whose strides are what the trace says: checked, as those of a region, or known."""
    checked = line.symbol.executor in fusion
    if not checked and line.symbol.tags.isdisjoint(_PRODUCTS):
        return []
    return [p for p in line.outputs() if isinstance(p, TensorProxy) and (checked or p.contiguous)]


def _roots(line: BoundSymbol, roots: dict[str, TensorProxy]) -> dict[str, TensorProxy] | None:
    """For each result of a line that only makes views of one known memory what it looks at; None for other lines."""
    if line.symbol.executor is not None or not line.is_view():
        return None
    bases = [root for proxy in line.inputs() if (root := roots.get(proxy.name)) is not None]
    results = line.outputs()
    if len(bases) != 1 or not all(_fits(proxy, bases[0]) for proxy in results):
        return {}
    return {proxy.name: bases[0] for proxy in results}


def _fits(view: Proxy, root: TensorProxy) -> bool:
    if not isinstance(view, TensorProxy) or (view.storage, view.dtype) != (root.storage, root.dtype):
        return False
    return view.layout is root.layout is torch.strided and not view.dtype.is_complex  # which may be conjugated


def _direct(line: BoundSymbol, view: TensorProxy, root: TensorProxy) -> BoundSymbol:
    args = (root, view.shape, view.stride, view.offset - root.offset)
    return replace(line, symbol=_SYMBOL, args=args, kwargs={}, output=view)
