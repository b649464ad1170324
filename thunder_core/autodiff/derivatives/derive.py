"""The derivative of an op: by its own programs, its executor, a rule, PyTorch's autograd, or autograd at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from thunder_core.autodiff.derivatives.by_autograd import derive_by_autograd
from thunder_core.autodiff.derivatives.by_eager import derive_by_eager
from thunder_core.autodiff.derivatives.by_executor import derive_by_executor
from thunder_core.autodiff.derivatives.by_hook import calls_hooks_later, derive_by_hook
from thunder_core.autodiff.derivatives.by_programs import derive_by_programs
from thunder_core.autodiff.derivatives.by_rule import derive_by_rule
from thunder_core.autodiff.derivatives.derivative import Derivative, Query
from thunder_core.autodiff.derivatives.formulas_in_python import reads_objects
from thunder_core.autodiff.derivatives.rules import is_of_core, rule_name
from thunder_core.errors import LoweringError
from thunder_core.executors.decision import Declined
from thunder_core.executors.disk_tables import OpTable, is_op
from thunder_core.executors.executor import Executor
from thunder_core.executors.query import query_executors
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.keys import call_key
from thunder_core.ir.symbol import Tag
from thunder_core.symbols.python_kernels import python_formulas

_OTHER_FIELDS: Final = tuple([field.name for field in fields(Derivative) if field.name not in ("bound", "forward")])


def _is_stored_derivative(value: Any) -> bool:
    """Whether this is what `write` stores."""
    if type(value) is not tuple or len(value) != 2:
        return False
    forward, others = value
    if type(forward) is not list or type(others) is not dict or tuple(others) != _OTHER_FIELDS:
        return False
    ops = [*[op for op in forward if op is not None], *others["backward"]]
    mappings = (others["cotangents"], others["gradients"], others["along"] or {})
    return (
        all(map(is_op, ops))
        and all(type(mapping) is dict for mapping in mappings)
        and type(others["source"]) is str
        and type(others["reason"]) is str
        and others["decisions"] == ()
    )


_TABLE: Final = OpTable("derivatives 5", _is_stored_derivative)


def read(key: Any, query: Query) -> Derivative | None:
    """The derivative that another process stored on disk for an equal query; None if there is none."""
    entry = _TABLE.read(key, query.bound) if _is_storable(key, query) else None
    if entry is None:
        return None
    bound, (forward, others) = entry
    return Derivative(bound, tuple([op or bound for op in forward]), **others)


def write(key: Any, query: Query, derivative: Derivative) -> None:
    """Store a derivative on disk, if it can be serialized. It must not have decisions of executors."""
    if _is_storable(key, query):
        forward = [None if op is derivative.bound else op for op in derivative.forward]
        _TABLE.write(key, derivative.bound, (forward, {name: getattr(derivative, name) for name in _OTHER_FIELDS}))


def _is_storable(key: Any, query: Query) -> bool:
    return key is not None and is_of_core(rule_name(query.bound.symbol), query.rule)


_cache: Final = BoundedCache[Derivative](2048)


def derive(query: Query, executors: Sequence[Executor]) -> Derivative:
    """The derivative of an op, cached for equal ops, such as those of the layers of a model.

    It is not cached if the pair of an executor failed, so that each compilation warns about that.

    The result is expressed for the op `Derivative.bound`, whose values may have other names than those of the query.
    """
    if calls_hooks_later(query.bound):
        return derive_by_hook(query)
    op_key = _key(query)
    key = None if op_key is None else (op_key, query.rule, *executors)
    cached = _cache.lookup([key])
    derivative = cached[key] if cached else _derive(query, executors, op_key)
    failed = any(isinstance(decision, Declined) and decision.failed for decision in derivative.decisions)
    return derivative if key is None or failed else _cache.add(key, derivative)


def _derive(query: Query, executors: Sequence[Executor], key: Any) -> Derivative:
    """The derivative from the first source that has one.

    The decisions of executors are stored with it, because forward may no longer contain the op when ops are assigned to
    executors.
    """
    if Tag.LOCAL in query.bound.symbol.tags:
        return derive_by_programs(query) or derive_by_eager(query, "it is a function of the user's")
    decisions = query_executors(executors, query.bound)
    pair = derive_by_executor(query, executors, decisions)
    if isinstance(pair, Derivative):
        return pair
    failures: list[str] = []
    if isinstance(pair, Declined):
        decisions = (*decisions[:-1], pair)
        failures += [pair.reason] if pair.failed else []
    derivative = _without_executors(query, key)
    reason = "; ".join([*failures, *([derivative.reason] if derivative.reason else [])])
    return replace(derivative, reason=reason, decisions=decisions)


def _without_executors(query: Query, key: Any) -> Derivative:
    """The derivative that does not depend on executors: read from disk, or derived."""
    if query.rule is None:
        formulas = python_formulas(query.bound.symbol.target)
        if formulas is None:
            return derive_by_eager(query, "the Python function of its gradients is not known")
        for formula in filter(reads_objects, formulas):
            name = getattr(formula, "__qualname__", type(formula).__qualname__)
            return derive_by_eager(query, f"{name} reads variables of the program, which may change")
    stored = read(key, query)
    if stored is not None:
        return stored
    failures: list[str] = []
    for source in (derive_by_rule, derive_by_autograd):
        try:
            derivative = source(query)
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
