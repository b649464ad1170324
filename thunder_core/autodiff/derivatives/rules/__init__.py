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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeAlias

from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.symbols.row import expand

MODULES: Final = ("elementwise", "matmul", "reductions", "shape")
"""The modules of this package that contain rules."""

Backward: TypeAlias = Callable[..., Any]
"""From the cotangents of the result's tensors to a tuple of gradients of the parameters, or to that of the first."""

Result: TypeAlias = tuple[Any, Backward] | Any
"""The result of the call and its backward; or NotImplemented, whose type is Any."""

Rule: TypeAlias = Callable[..., Result]

RULES: Final[dict[str, Rule]] = {}
"""The rules by the dotted name of their symbol."""


def rule(name: str) -> Callable[[Rule], Rule]:
    """A decorator that adds the rule of a symbol, by its dotted name; ``F.`` and ``Tensor.`` are short as in tables."""

    def add(function: Rule) -> Rule:
        full = expand(name)
        assert full not in RULES, f"{full} has two rules"
        RULES[full] = function
        return function

    return add


def find_rule(symbol: Symbol) -> Rule | None:
    """The rule of a symbol; None if it has none."""
    is_member = symbol.style in (CallStyle.METHOD, CallStyle.ATTRIBUTE)
    return all_rules().get(f"torch.Tensor.{symbol.name}" if is_member else symbol.name)


@cache
def all_rules() -> dict[str, Rule]:
    """All rules, including those of plugins, by the dotted name of their symbol."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
    return RULES


def add_rules(rules: Mapping[str, Rule]) -> None:
    """Add rules of a plugin (`thunder_core.plugins.specs.SymbolsSpec`), by the dotted names of their symbols.

    Adding the same rule again changes nothing.

    Raises:
        ValueError: a symbol has another rule. Nothing is added then.
    """
    known = all_rules()
    twice = [name for name, own in rules.items() if known.get(name, own) is not own]
    if twice:
        raise ValueError(f"{', '.join(twice)} has a rule already: {known[twice[0]].__module__}")
    known.update(rules)
