"""Derivatives by hand, for symbols where they have fewer ops, save fewer bytes or read better than autograd's.

A rule is a function with the parameters of a symbol's canonical call (the first signature of its row in
`thunder_core.symbols.tables`). It makes the call with torch functions, and returns the result together with a function
from cotangents, one for each tensor of the result, to gradients, one for each parameter::

    @rule("torch.square")
    def square(input: Tensor) -> Result:
        return torch.square(input), lambda g: g * (2.0 * input)

A rule runs on fake tensors, once for each combination of metadata; the torch functions that it calls become ops of the
joint trace. So it may read shapes and dtypes, but no values. To add a rule, write it into a module of this package; a
new module is listed in `MODULES`. ``tests/autodiff/test_rules.py`` compares it with eager on PyTorch's samples for the
operator, and ``test_rule_is_better_than_autograd`` there requires that one of its cases has fewer ops or saves less.

Gradients:

* None if none flows, and for a parameter that is not a tensor; a list for a list of tensors. A single gradient, of the
  first parameter, needs no tuple. Ops whose results no gradient uses are removed.
* Their shape and dtype may be those of the result after broadcasting and promotion: as by autograd's engine, they are
  summed to the shape of the argument and cast to its dtype (`thunder_core.autodiff.derivatives.by_rule.fit`).
* ``requires_grad`` of an argument says whether its gradient is needed.

Cotangents:

* A cotangent can have any strides, whatever the strides of the fake tensor: use ``reshape`` instead of ``view``.
* It is None for a result without cotangent, in rules of symbols with several results.

Values: backward may use arguments, results and intermediate values of the rule; the latter are saved or recomputed. If
it uses no intermediate value, forward keeps the op as the user wrote it. A rule must not save more bytes than PyTorch.
Formulas are those of PyTorch's ``tools/autograd/derivatives.yaml`` in the same order of operations, so that gradients
equal eager's bit by bit; the docstring names each exception.

A rule that returns NotImplemented leaves the call to autograd. So are calls with complex or sparse tensors, under
autocast, and with arguments that fit no parameter (``out=``); rules are not called for these.

A program has a guard on the rules of the symbols that it differentiates, in
`thunder_core.autodiff.derivatives.rules_guard`: it is compiled again when one of them is added or removed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from thunder_core.forking import renew_in_child
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.symbols.row import expand

MODULES: Final = ("elementwise", "matmul", "reductions", "shape")
"""The modules of this package that contain rules."""

Backward: TypeAlias = Callable[..., Any]
"""From the cotangents of the result's tensors to a tuple of gradients of the parameters, or to that of the first."""

Result: TypeAlias = tuple[Any, Backward] | Any
"""The result of the call and its backward; or NotImplemented, whose type is Any."""

Rule: TypeAlias = Callable[..., Result]

_rules: Mapping[str, Rule] = MappingProxyType({})
_of_core: Final[dict[str, Rule]] = {}
_lock: Final = threading.RLock()
renew_in_child(sys.modules[__name__], "_lock")


def rule(name: str) -> Callable[[Rule], Rule]:
    """A decorator that adds the rule of a symbol, by its dotted name; ``F.`` and ``Tensor.`` are short as in tables."""

    def add(function: Rule) -> Rule:
        _add({expand(name): function})
        if function.__module__.startswith(f"{__name__}."):
            _of_core[expand(name)] = function
        return function

    return add


def rule_name(symbol: Symbol) -> str:
    """The name by which the rule of a symbol is registered."""
    is_member = symbol.style in (CallStyle.METHOD, CallStyle.ATTRIBUTE)
    return f"torch.Tensor.{symbol.name}" if is_member else symbol.name


def all_rules() -> Mapping[str, Rule]:
    """All rules, including those of plugins, by the dotted name of their symbol.

    The mapping never changes: when rules are added or removed, another one replaces it. So one lookup of all rules of a
    program is consistent, and a program whose rules were compared with this mapping needs no other comparison as long
    as this function returns it.
    """
    _import_modules()
    return _rules


def is_of_core(name: str, rule: Rule | None) -> bool:
    """Whether a symbol has this rule, or none, in every process: no plugin added, changed or removed it."""
    _import_modules()
    return _of_core.get(name) is rule


@cache
def _import_modules() -> None:
    for module in MODULES:
        import_module(f"{__name__}.{module}")


def add_rules(rules: Mapping[str, Rule]) -> None:
    """Add rules of a plugin (`thunder_core.plugins.specs.SymbolsSpec`), by the dotted names of their symbols.

    Programs that differentiate one of these symbols are compiled again at their next call. Adding the same rule again
    changes nothing.

    Raises:
        ValueError: a symbol has another rule. Nothing is added then.
    """
    _import_modules()
    _add(rules)


def remove_rules(names: Iterable[str]) -> None:
    """Remove the rules of these symbols, for example to add changed ones. Programs with them are compiled again.

    Raises:
        KeyError: a symbol has no rule. Nothing is removed then.
    """
    global _rules
    _import_modules()  # before the lock is taken, which importing a module of rules takes too
    with _lock:
        remaining = dict(_rules)
        for name in names:
            del remaining[name]
        _rules = MappingProxyType(remaining)


def _add(rules: Mapping[str, Rule]) -> None:
    global _rules
    with _lock:
        twice = [name for name, own in rules.items() if _rules.get(name, own) is not own]
        if twice:
            raise ValueError(f"{', '.join(twice)} has a rule already: {_rules[twice[0]].__module__}")
        if not rules.keys() <= _rules.keys():
            _rules = MappingProxyType({**_rules, **rules})
