"""Evaluation of expressions in a printed module: names of values, dotted names as in `names.py`, and literals."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any, Final

import torch

from thunder_core.errors import TraceSyntaxError
from thunder_saving.module_syntax import ModuleSyntax
from thunder_saving.names import Names
from thunder_saving.verified_source import dotted

_LONGEST_RANGE: Final = 1 << 20
_SIGNS = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}


ALLOW: Final = "functions of your own are given: load_trace(path, functions={'module.function': function})"
"""Advice for names of other functions than those of PyTorch, Thunder and plugins."""


class ExpressionReader:
    """Evaluates the expressions of one function.

    Args:
        module: for error messages.
        names: the proxies (and bodies) by name at this point; may grow.
        known: looks up other names.
    """

    def __init__(self, module: ModuleSyntax, names: Mapping[str, Any], known: Names) -> None:
        self.module = module
        self.names = names
        self.known = known

    def value(self, node: ast.expr) -> Any:
        """The value of ``node``. Raises TraceSyntaxError."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Tuple(elts=items):
                return tuple([self.value(item) for item in items])
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                return self._dict(node, keys, values)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*[None if part is None else self.value(part) for part in (lower, upper, step)])
            case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
                return self._signed(node, _SIGNS[type(sign)], self.value(operand))
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):  # complex numbers: 1+2j
                return self._sum(node, self.value(left), self.value(right), isinstance(node.op, ast.Sub))
            case ast.Attribute():
                return self.object(node)
            case ast.Call():
                return self._call(node)
        raise self.module.error(
            f"{ast.unparse(node)!r} is neither a value nor a literal", node, "give it a line of its own"
        )

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        """The keyword arguments of a call."""
        values: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            given = {keyword.arg: value} if keyword.arg is not None else value
            if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
                raise self.module.error(f"{ast.unparse(keyword.value)!r} is not a dict of arguments", node)
            values.update(given)
        return values

    def object(self, node: ast.expr) -> Any:
        """The object of a dotted name."""
        path = dotted(node)
        if path is None or path.split(".")[0] in self.names:
            raise self.module.error(
                f"{ast.unparse(node)!r} is neither a value nor a literal", node, "give it a line of its own"
            )
        try:
            return self.known.value(path)
        except LookupError as error:
            raise self.module.error(f"{path} is not a name that a trace may have", node, ALLOW) from error

    def _name(self, node: ast.expr, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        try:
            return self.known.value(name)
        except LookupError:
            raise self.module.error(f"{name!r} is not defined before this line", node) from None

    def _dict(self, node: ast.Dict, keys: list[ast.expr | None], values: list[ast.expr]) -> dict[Any, Any]:
        if None in keys:
            raise self.module.error("'**' cannot be used in a dict of a trace", node)
        return {self.value(key): self.value(value) for key, value in zip(keys, values, strict=True) if key is not None}

    def _signed(self, node: ast.expr, sign: Any, operand: Any) -> Any:
        if not isinstance(operand, int | float | complex):
            raise self.not_a_literal(node)
        return sign(operand)

    def _sum(self, node: ast.expr, left: Any, right: Any, minus: bool) -> Any:
        if not isinstance(left, int | float | complex) or not isinstance(right, complex):
            raise self.not_a_literal(node)
        return left - right if minus else left + right

    def _call(self, node: ast.Call) -> Any:
        """A literal in the form of a constructor call: ``torch.Size([2])``, ``torch.device("cpu")``."""
        path = dotted(node.func)
        try:  # traces write a tuple whose class has its own `__new__` as `tuple.__new__(Class, items)`
            kind = tuple.__new__ if path == "tuple.__new__" else self.known.constructor(path or "")
        except LookupError as error:
            raise self.not_a_literal(node) from error
        args = [self.value(item) for item in node.args]
        if kind is torch.Size and not all(isinstance(item, list | tuple) for item in args):
            raise self.not_a_literal(node)
        try:
            result = kind(*args, **self.keywords(node))
            if not isinstance(result, range) or len(result) <= _LONGEST_RANGE:
                return result
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise self.module.error(f"{ast.unparse(node)}: {error}", node) from error
        raise self.module.error(f"{ast.unparse(node)} is longer than {_LONGEST_RANGE}", node)

    def not_a_literal(self, node: ast.expr) -> TraceSyntaxError:
        """The error for a computation in place of a literal or a name."""
        return self.module.error(
            f"{ast.unparse(node)!r} is a computation inside of another", node, "give it a line of its own"
        )
