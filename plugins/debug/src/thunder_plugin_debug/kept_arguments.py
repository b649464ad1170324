"""Hand the arguments of forward to the backward of a pair, where the reference needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_plugin_debug.plain_name import plain_name


@dataclass(frozen=True, slots=True, eq=False)
class WithArguments:
    """The backward of a pair, called with ``(residuals, args, kwargs)`` of forward where it takes residuals.

    Attributes:
        name: what traces print for the backward.
        backward: the executor's.
        why_not: why its gradients cannot be compared; then it is called as ever.
    """

    name: str
    backward: Callable[..., Any]
    why_not: str | None = None

    def __call__(self, kept: tuple[Any, ...], cotangents: Any, wanted: Any) -> Any:
        """The gradients."""
        return self.backward(kept if self.why_not is not None else kept[0], cotangents, wanted)


def keep_arguments(trace: Trace, wanted: Callable[[BoundSymbol], bool], provenance: str) -> Trace:
    """The joint trace of forward and backward, where each backward of a pair is a `WithArguments` if it is ``wanted``.

    What it is handed is saved for it, or computed again, as the partition sees fit.
    """
    forwards = [bound for bound in trace.symbols if bound.symbol.executor is not None and not _is_backward(bound)]
    backwards = [bound for bound in trace.symbols if _is_backward(bound)]
    pairs = _pairs(forwards, backwards)
    lines = [
        _keeping(bound, pairs.get(id(bound))) if _is_backward(bound) and wanted(bound) else bound
        for bound in trace.symbols
    ]
    return trace.with_symbols(lines, provenance)


def _is_backward(bound: BoundSymbol) -> bool:
    return Tag.BACKWARD in bound.symbol.tags


def _keeping(backward: BoundSymbol, forward: BoundSymbol | None) -> BoundSymbol:
    symbol, args = backward.symbol, backward.args
    why_not = None
    if forward is None:
        why_not = "it cannot be told which call of forward is its own"
    elif forward.effects.random:
        why_not = "its forward draws random numbers"
    else:
        residuals, cotangents, wanted = args
        args = ((residuals, forward.args, forward.kwargs), cotangents, wanted)
    target = WithArguments(symbol.name, symbol.target, why_not)
    printed = f"with_arguments_{plain_name(symbol.name)}"
    symbol = replace(symbol, name=printed, target=target, tags=symbol.tags | {Tag.LOCAL})
    return replace(backward, symbol=symbol, args=args)


def _pairs(forwards: Sequence[BoundSymbol], backwards: Sequence[BoundSymbol]) -> dict[int, BoundSymbol]:
    """By the identity of a backward its forward, as far as it can be told.

    Backward is written from the last line to the first. Where not all calls at a line have a backward, residuals must
    tell which one it belongs to.
    """
    found = {}
    for alike in _by_origin(backwards).values():
        others = _by_origin(forwards).get(_origin(alike[0]), [])
        reverse = list(zip(reversed(others), alike, strict=False))
        if len(others) == len(alike) and all(_fits(forward, backward) for forward, backward in reverse):
            found.update({id(backward): forward for forward, backward in reverse})
            continue
        for backward in alike:
            candidates = [forward for forward in others if _fits(forward, backward)]
            if len(candidates) == 1:
                found[id(backward)] = candidates[0]
    return found


def _by_origin(lines: Sequence[BoundSymbol]) -> dict[Any, list[BoundSymbol]]:
    groups: dict[Any, list[BoundSymbol]] = {}
    for bound in lines:
        groups.setdefault(_origin(bound), []).append(bound)
    return groups


def _origin(bound: BoundSymbol) -> Any:
    return bound.symbol.executor, bound.symbol.reference, bound.location


def _fits(forward: BoundSymbol, backward: BoundSymbol) -> bool:
    own = {proxy.name for proxy in (*forward.inputs(), *forward.outputs())}
    return _residuals_fit(forward.output[1], backward.args[0], own)


def _residuals_fit(made: Any, taken: Any, own: set[str]) -> bool:
    """Whether ``taken`` are the residuals of a forward that makes ``made``: None stands there for values of its own."""
    if isinstance(made, PROXY_TYPES):
        return isinstance(taken, PROXY_TYPES) and made.name == taken.name
    if made is None:
        return not isinstance(taken, PROXY_TYPES) or taken.name in own
    if isinstance(made, tuple | list):
        same = isinstance(taken, tuple | list) and len(made) == len(taken)
        return same and all(_residuals_fit(one, other, own) for one, other in zip(made, taken, strict=True))
    if isinstance(made, dict):
        same = isinstance(taken, dict) and made.keys() == taken.keys()
        return same and all(_residuals_fit(made[key], taken[key], own) for key in made)
    return True
