"""Conversion of call expressions to symbols and arguments."""

from __future__ import annotations

import ast
from typing import Any

from thunder_core.ir.printer import LEAVES
from thunder_core.ir.proxy import PROXY_TYPES
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_saving.expressions import ALLOW, ExpressionReader
from thunder_saving.module_syntax import ModuleSyntax
from thunder_saving.verified_source import dotted

CallParts = tuple[Symbol, tuple[Any, ...], dict[str, Any], bool]
"""Symbol, arguments, keyword arguments, and whether the result is flattened by `thunder_core.ir.tree.leaves`."""


class CallReader:
    """Reads the calls of one function.

    Args:
        module: for error messages.
        expressions: the reader of the arguments.
    """

    def __init__(self, module: ModuleSyntax, expressions: ExpressionReader) -> None:
        self.module = module
        self.expressions = expressions

    def read(self, node: ast.expr) -> CallParts:
        """The parts of a call. Raises TraceSyntaxError for other expressions and for unknown functions."""
        if isinstance(node, ast.Call) and dotted(node.func) == LEAVES and len(node.args) == 1:
            symbol, args, kwargs, _ = self.read(node.args[0])
            return symbol, args, kwargs, True
        if isinstance(node, ast.Call):
            return (*self._call(node), False)
        if isinstance(node, ast.Attribute) and self._is_value(node.value):
            symbol = self._symbol(node, node.attr, CallStyle.ATTRIBUTE)
            return symbol, (self.expressions.value(node.value),), {}, False
        if isinstance(node, ast.Subscript):
            receiver, index = self.expressions.value(node.value), self.expressions.value(node.slice)
            return self._symbol(node, "getitem", CallStyle.GETITEM), (receiver, index), {}, False
        raise self.module.error(
            f"{ast.unparse(node)!r} is not a call", node, "write operators as functions: torch.add(a, b)"
        )

    def _call(self, node: ast.Call) -> tuple[Symbol, tuple[Any, ...], dict[str, Any]]:
        function = node.func
        receiver: tuple[Any, ...] = ()
        if isinstance(function, ast.Attribute) and self._is_value(function.value):
            receiver = (self.expressions.value(function.value),)
            symbol = self._symbol(function, function.attr, CallStyle.METHOD)
        else:
            symbol = self._function(function)
        args = tuple([self.expressions.value(argument) for argument in node.args])
        return symbol, receiver + args, self.expressions.keywords(node)

    def _is_value(self, node: ast.expr) -> bool:
        """Whether ``node`` is the receiver of a method: a value of the trace or a literal, rather than a module."""
        if isinstance(node, ast.Name):
            return isinstance(self.expressions.names.get(node.id), PROXY_TYPES)
        return dotted(node) is None or self._root_is_value(node)

    def _root_is_value(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return self._is_value(node)

    def _function(self, node: ast.expr) -> Symbol:
        name = dotted(node)
        if name is None:
            raise self.module.error(f"{ast.unparse(node)!r} is not the name of a function", node)
        if "." not in name and name not in self.expressions.known.functions:
            raise self.module.error(f"{name!r} is not a function", node, "functions are named from their module on")
        return self._symbol(node, name, CallStyle.FUNCTION)

    def _symbol(self, node: ast.expr, name: str, style: CallStyle) -> Symbol:
        try:
            return self.expressions.known.symbol(name, style)
        except LookupError as error:
            if style is not CallStyle.FUNCTION:
                raise self.module.error(f"torch.Tensor has no {name} that a trace may call", node) from error
            problem = f"there is no function {name} that a trace may call"
            raise self.module.error(problem, node, ALLOW) from error
