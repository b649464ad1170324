"""Find the derivative of a line: the executor's, a hand-written rule's, PyTorch's autograd's, or eager at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from thunder_core.autodiff import kept_derivatives
from thunder_core.autodiff.by_autograd import derive_by_autograd
from thunder_core.autodiff.by_eager import derive_by_eager
from thunder_core.autodiff.by_executor import derive_by_executor
from thunder_core.autodiff.by_hook import calls_hooks_later, derive_by_hook
from thunder_core.autodiff.by_rule import derive_by_rule
from thunder_core.autodiff.derivative import Derivative, Query
from thunder_core.errors import LoweringError
from thunder_core.executors.ask import ask
from thunder_core.executors.decision import Declined
from thunder_core.executors.executor import Executor
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.keys import call_key
from thunder_core.ir.symbol import Tag

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
    known = kept_derivatives.read(key, query)
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
            kept_derivatives.write(key, query, derivative)
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
