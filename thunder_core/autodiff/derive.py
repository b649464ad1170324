"""Find the derivative of a line: the executor's, a hand-written rule's, PyTorch's autograd's, or eager at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from thunder_core.autodiff.by_autograd import derive_by_autograd
from thunder_core.autodiff.by_eager import derive_by_eager
from thunder_core.autodiff.by_executor import derive_by_executor
from thunder_core.autodiff.by_hook import calls_hooks_later, derive_by_hook
from thunder_core.autodiff.by_rule import derive_by_rule
from thunder_core.autodiff.derivative import Derivative, Query
from thunder_core.autodiff.rules import find_rule
from thunder_core.errors import LoweringError
from thunder_core.executors.ask import ask
from thunder_core.executors.decision import Declined
from thunder_core.executors.disk_tables import LineTable
from thunder_core.executors.executor import Executor
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.keys import call_key
from thunder_core.ir.symbol import Tag

_LINES: Final = LineTable("derivatives 1")
_REST: Final = tuple([own.name for own in fields(Derivative) if own.name not in ("bound", "forward")])


def read(key: Any, query: Query) -> Derivative | None:
    """The derivative that another process found for an equal query; None if there is none."""
    found = _LINES.read(key, query.bound) if _is_kept(key, query) else None
    if found is None:
        return None
    bound, (forward, rest) = found
    return Derivative(bound, tuple([line or bound for line in forward]), **rest)


def write(key: Any, query: Query, derivative: Derivative) -> None:
    """Keep a derivative, if that can be done. It has no answers of executors."""
    if _is_kept(key, query):
        forward = [None if line is derivative.bound else line for line in derivative.forward]
        _LINES.write(key, derivative.bound, (forward, {name: getattr(derivative, name) for name in _REST}))


def _is_kept(key: Any, query: Query) -> bool:
    rule = find_rule(query.bound.symbol)
    return key is not None and (rule is None or rule.__module__.split(".")[0] == "thunder_core")


_cache: Final = BoundedCache[Derivative](2048)


def derive(query: Query, executors: Sequence[Executor] = ()) -> Derivative:
    """The derivative of a line, cached for lines that are equal, as those of the layers of a model.

    The result is for the line in `Derivative.bound`, whose values may have other names.
    """
    if calls_hooks_later(query.bound):
        return derive_by_hook(query)
    own = _key(query)
    key = None if own is None else (own, *executors)
    return _cache.get(key, lambda: _find(query, executors, own))


def _find(query: Query, executors: Sequence[Executor], key: Any) -> Derivative:
    """The derivative from the first source that has one.

    The decisions of executors are stored with it, since forward may no longer have the line when executors are
    assigned.
    """
    if Tag.LOCAL in query.bound.symbol.tags:
        return derive_by_eager(query, "it is a function of the user's")
    answers = ask(executors, query.bound)
    pair = derive_by_executor(query, executors, answers)
    if isinstance(pair, Derivative):
        return pair
    failures: list[str] = []
    if isinstance(pair, Declined):
        answers = (*answers[:-1], pair)
        failures += [pair.reason] if pair.failed else []
    formula = _formula(query, key)
    reason = "; ".join([*failures, *([formula.reason] if formula.reason else [])])
    return replace(formula, reason=reason, answers=answers)


def _formula(query: Query, key: Any) -> Derivative:
    """The derivative that depends on no executor: read from disk, or derived now."""
    known = read(key, query)
    if known is not None:
        return known
    failures: list[str] = []
    for way in (derive_by_rule, derive_by_autograd):
        try:
            derivative = way(query)
        except LoweringError as error:
            failures.append(str(error))
            continue
        if derivative is not None:
            derivative = replace(derivative, reason="; ".join(failures))
            write(key, query, derivative)
            return derivative
    return derive_by_eager(query, "; ".join(failures))


def _key(query: Query) -> Any:
    bound = query.bound
    assert bound.context is not None
    key = call_key(bound, bound.context)
    if key is None:
        return None
    wanted = tuple([proxy.name in query.wanted for proxy in bound.inputs()])
    reached = tuple([proxy.name in query.reached for proxy in bound.outputs()])
    strides = tuple([query.cotangent_strides.get(proxy.name) for proxy in bound.outputs()])
    return (key, wanted, reached, strides)
