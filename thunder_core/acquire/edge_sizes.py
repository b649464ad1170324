"""Whether what a call gives for sizes that lines define holds where these are 0 and 1.

PyTorch's general way may differ from what it does there: ``squeeze`` keeps a dimension of unknown size. Such a call is
inferred anew, with facts about the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.errors import trying
from thunder_core.ir.proxy import PROXY_TYPES, NumberProxy, TensorProxy
from thunder_core.ir.size import SizeExpr, as_constant, symbols_of, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.tracing.fake_mode import ObservingFakeMode
from thunder_core.tracing.fake_tensors import make_sharing_fakes
from thunder_core.tracing.outcome import Outcome, infer

if TYPE_CHECKING:
    from thunder_core.tracing.sizes import Sizes


def varies_by_values(proxy: TensorProxy, sizes: Sizes) -> bool:
    """Whether lines of the program define sizes of a tensor."""
    return not sizes.defined.keys().isdisjoint(symbols_of((*proxy.shape, *proxy.stride, proxy.offset)))


def holds(sizes: Sizes, mode: ObservingFakeMode, symbol: Symbol, call: Call, outcome: Outcome) -> bool:
    """Whether results have the shapes, and share the memory, that an outcome says where sizes are 0 and 1.

    Args:
        sizes: of the compilation.
        mode: of the program's fakes.
        call: before it is recorded.
        outcome: what was inferred for the sizes of this call.
    """
    literals = [leaf for leaf in iterate_leaves((call.args, call.kwargs)) if type(leaf) is SizeExpr]
    geometry = [size for proxy in call.proxies for size in (*proxy.shape, *proxy.stride, proxy.offset)]
    names = set(symbols_of((*geometry, *literals))) & sizes.defined.keys()
    if not names or Tag.LOCAL in symbol.tags or Tag.HIGHER_ORDER in symbol.tags:
        return True
    return all(_holds_at(values, mode, symbol, call, outcome) for values in _edges(sizes, names))


def _edges(sizes: Sizes, names: set[str]) -> Iterator[Mapping[str, int]]:
    """Values of the symbols with one of these, or all, at 0 or 1, as far as the facts so far admit them."""
    groups = [{name} for name in sorted(names)] + ([names] if len(names) > 1 else [])
    for group in groups:
        for edge in (0, 1):
            values = {**sizes.values, **dict.fromkeys(group, edge)}
            if sizes.admits(values):
                yield values


def _holds_at(values: Mapping[str, int], mode: ObservingFakeMode, symbol: Symbol, call: Call, outcome: Outcome) -> bool:
    constant = partial(as_constant, values=values)
    proxies = {proxy.name: proxy.with_sizes(constant) for proxy in call.proxies}
    fakes = make_sharing_fakes(mode, proxies.values())

    def argument(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return fakes[leaf.name]
        return leaf.python_type(1) if isinstance(leaf, NumberProxy) else with_size(leaf, constant)

    if any(isinstance(leaf, PROXY_TYPES) and not isinstance(leaf, TensorProxy | NumberProxy) for leaf in _leaves(call)):
        return True  # a generator: what is drawn has the shape that is asked for
    args, kwargs = map_leaves(argument, (call.args, call.kwargs))
    with mode.observing() as observed, torch.no_grad(), torch.inference_mode(False):
        try:
            with trying():
                found, _ = infer(symbol.target, args, kwargs, [fakes[proxy.name] for proxy in call.proxies], observed)
        except Exception:  # noqa: BLE001 - a run with such sizes raises it
            return True
    if len(found.results) != len(outcome.results):
        return False
    for result, expected in zip(found.results, outcome.results, strict=True):
        if result.shape != tuple([with_size(size, constant) for size in expected.shape]):
            return False
        shared = (result.same_as, result.shares, result.shares_result)
        if 0 not in result.shape and shared != (expected.same_as, expected.shares, expected.shares_result):
            return False
    return True


def _leaves(call: Call) -> Iterator[Any]:
    return iterate_leaves((call.args, call.kwargs))
