"""Derivatives written by hand, where they make traces clearer or faster than what PyTorch's autograd does.

A rule is a function with the parameters of a symbol's canonical call (the first signature of its row in
`thunder_core.symbols.tables`). It makes the call with torch functions, and returns the result together with a function
from cotangents, one for each tensor of the result, to gradients, one for each parameter::

    @rule("torch.mul")
    def mul(input: Any, other: Any) -> Result:
        return torch.mul(input, other), lambda g: (g * other, g * input)

It runs once for each form of call, on fake tensors; what it calls becomes lines of the joint trace. So it may ask for
shapes and dtypes, but not for values. To add one, write it into the module of its area; a new module is named in
`AREAS`. ``tests/autodiff/test_rules.py`` then compares it with eager over PyTorch's samples for that operator.

* A gradient is None where none flows, and for what is no tensor; a list for a list of tensors. Nothing needs to be left
  out: lines whose results nobody wants go away. One gradient need not be in a tuple.
* Gradients may have the shape and dtype that broadcasting and promotion gave the result: as in PyTorch's autograd
  engine, they are summed to the shape of the argument and converted afterwards (`thunder_core.autodiff.by_rule`).
* ``requires_grad`` of an argument says whether its gradient is wanted, for kernels that can leave gradients out.
* Cotangents may come with any strides, whatever the fake ones say: reshape them, never view.
* A cotangent is None for a result that none flows to, in rules of several results.
* What backward uses besides arguments and results is kept in memory: no more bytes than PyTorch keeps. The line itself
  stays as the user wrote it, unless backward uses a value from inside.
* Formulas are those of PyTorch's ``tools/autograd/derivatives.yaml`` in the same order, so that values are the same to
  the bit, or the docstring says why not. Fused kernels (``torch.ops.aten.*_backward``) are lines like others.
* Rules of a plugin, for operations of its own, come with its symbols (`thunder_core.plugins.specs.SymbolsSpec`).
* A rule returns NotImplemented for arguments that it is not for; PyTorch's autograd then gives the derivative. Complex
  numbers, autocast, sparse tensors and arguments that fit no parameter (``out=``) do not reach it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Final

from thunder_core.autodiff.rules.rule import RULES, Rule
from thunder_core.ir.symbol import CallStyle, Symbol

AREAS: Final = (
    "unary",
    "elementwise",
    "matmul",
    "reductions",
    "shape",
    "indexing",
    "normalization",
    "random",
)
"""Modules of this package that hold rules: those of PyTorch's operations."""


def find_rule(symbol: Symbol) -> Rule | None:
    """The rule of a symbol, if there is one."""
    is_member = symbol.style in (CallStyle.METHOD, CallStyle.ATTRIBUTE)
    return all_rules().get(f"torch.Tensor.{symbol.name}" if is_member else symbol.name)


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule, by the dotted name of what it differentiates."""
    for area in AREAS:
        import_module(f"{__name__}.{area}")
    return RULES


def add_rules(rules: Mapping[str, Rule]) -> None:
    """Add rules, by the full dotted names of what they differentiate. Those that are there already stay.

    Raises:
        ValueError: an operation has another rule. Nothing is added then.
    """
    known = all_rules()
    twice = [name for name, own in rules.items() if known.get(name, own) is not own]
    if twice:
        raise ValueError(f"{', '.join(twice)} has a rule already: {known[twice[0]].__module__}")
    known.update(rules)
