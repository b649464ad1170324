"""Passing the arguments of forward to the backward of a derivative pair, for its reference."""

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
    """The backward of a pair, called with ``(residuals, args, kwargs)`` of forward instead of residuals.

    Attributes:
        name: its name in traces.
        backward: the executor's function.
        why_not: the reason why its gradients cannot be compared; then it is called with residuals only.
    """

    name: str
    backward: Callable[..., Any]
    why_not: str | None = None

    def __call__(self, saved: tuple[Any, ...], cotangents: Any, wanted: Any) -> Any:
        """The gradients."""
        return self.backward(saved if self.why_not is not None else saved[0], cotangents, wanted)


def pass_arguments(trace: Trace, wanted: Callable[[BoundSymbol], bool], provenance: str) -> Trace:
    """The joint trace of forward and backward in which each backward of a pair that is ``wanted`` is a `WithArguments`.

    The partition decides whether its additional arguments are saved or recomputed.
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
        why_not = "it is unknown which call of forward belongs to it"
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
    """The forward of each backward, by the identity of the backward, as far as it is known.

    Backward is recorded from the last operation to the first. If only some calls from a source line have a backward,
    residuals identify the call.
    """
    matches = {}
    for alike in _by_origin(backwards).values():
        others = _by_origin(forwards).get(_origin(alike[0]), [])
        reverse = list(zip(reversed(others), alike, strict=False))
        if len(others) == len(alike) and all(_fits(forward, backward) for forward, backward in reverse):
            matches.update({id(backward): forward for forward, backward in reverse})
            continue
        for backward in alike:
            candidates = [forward for forward in others if _fits(forward, backward)]
            if len(candidates) == 1:
                matches[id(backward)] = candidates[0]
    return matches


def _by_origin(lines: Sequence[BoundSymbol]) -> dict[Any, list[BoundSymbol]]:
    groups: dict[Any, list[BoundSymbol]] = {}
    for bound in lines:
        groups.setdefault(_origin(bound), []).append(bound)
    return groups


def _origin(bound: BoundSymbol) -> Any:
    return bound.symbol.executor, bound.symbol.reference, bound.location


def _fits(forward: BoundSymbol, backward: BoundSymbol) -> bool:
    names = {proxy.name for proxy in forward.proxies()}
    return _residuals_fit(forward.output[1], backward.args[0], names)


def _residuals_fit(results: Any, taken: Any, names: set[str]) -> bool:
    """Whether ``taken`` can be the residuals of a forward with results ``made``, where None represents a new value."""
    if isinstance(results, PROXY_TYPES):
        return isinstance(taken, PROXY_TYPES) and results.name == taken.name
    if results is None:
        return not isinstance(taken, PROXY_TYPES) or taken.name in names
    if isinstance(results, tuple | list):
        same = isinstance(taken, tuple | list) and len(results) == len(taken)
        return same and all(_residuals_fit(one, other, names) for one, other in zip(results, taken, strict=True))
    if isinstance(results, dict):
        same = isinstance(taken, dict) and results.keys() == taken.keys()
        return same and all(_residuals_fit(results[key], taken[key], names) for key in results)
    return True
