"""Functions of a saved program: their syntax and names are verified, then they are compiled.

A printed trace is a list of calls. `compile_functions` admits this syntax alone, and looks each dotted name up in the
tables of `thunder_core.symbols.admitted` and `thunder_saving.operations`. The code that runs contains the objects that
were found, not their names. Nothing of the text runs before all of it is verified, and its imports are not followed.

Unlike `thunder_saving.reader` this derives no metadata, so it needs neither fake tensors nor the front end.
"""

from __future__ import annotations

import ast
import collections
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from thunder_core.errors import TraceSyntaxError
from thunder_core.ir.number_functions import NAMES
from thunder_core.ir.program import compile_source
from thunder_core.ir.symbol import CallStyle
from thunder_core.ir.tree import leaves
from thunder_core.symbols.admitted import is_admitted, static_value
from thunder_core.symbols.registry import registry
from thunder_saving.operations import executable_function

_CONSTANT_KINDS: Final = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
_TYPES: Final = {kind.__name__: kind for kind in (bool, complex, dict, float, int, list, set, str, tuple)}
_CONSTRUCTORS: Final = {
    "complex": complex,
    "range": range,
    "slice": slice,
    "set": set,
    "frozenset": frozenset,
    "torch.Size": torch.Size,
    "torch.device": torch.device,
}
_CONSTANTS: Final = ("e", "inf", "nan", "pi", "tau")
_CONTEXTS: Final = frozenset(
    {
        "torch.no_grad",
        "torch.enable_grad",
        "torch.set_grad_enabled",
        "torch.inference_mode",
        "torch.autocast",
        "torch.nn.attention.sdpa_kernel",
    }
)
_NUMBERS: Final = {
    **{function.__name__: function for function in (abs, bool, float, int, max, min, round)},
    **{name: function for name, function in NAMES.items() if name not in ("math", "numpy_function")},
    **{f"math.{name}": function for name, function in vars(math).items() if name[0] != "_"},
}
"""Functions of numbers, by the names that conditions on sizes and numbers use."""
_MATH: Final = {"inf": math.inf, "nan": math.nan, **{f"math.{name}": getattr(math, name) for name in _CONSTANTS}}
_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod, ast.Pow)
_CALLED: Final = {
    "functools.partial": functools.partial,
    "tuple.__new__": tuple.__new__,
    **_CONSTRUCTORS,
    **_NUMBERS,
}
_CREATED: Final = frozenset(
    {bool, complex, dict, float, frozenset, int, list, range, set, slice, str, tuple, torch.Size, torch.device}
    | {collections.OrderedDict, collections.defaultdict, collections.deque}
    | {torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode, torch.autocast}
)
"""The classes that a program may call; instances of others are created without running their code."""
_MARK: Final = "\xb7"
"""A middle dot, which no name of a value has."""
_COMPARISONS: Final = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_LONGEST_RANGE: Final = 1 << 20
Lookup = Callable[[str], Any]
"""Returns the object of a dotted name; raises LookupError if a program must not name it."""


def dotted(node: ast.expr) -> str | None:
    """``"torch.nn.functional.linear"``; None if the expression is not a dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def function_named(name: str) -> Any:
    """The function of a call that a trace prints as ``name``. Raises LookupError if a file must not name it."""
    if name == "thunder_core.ir.tree.leaves":
        return leaves
    if name in _CONTEXTS:
        return static_value(name)
    if is_admitted(name, CallStyle.FUNCTION):
        return registry.symbol_named(name, CallStyle.FUNCTION).target
    return executable_function(name)


def constant_named(name: str) -> Any:
    """The constant of PyTorch with a dotted name: a dtype, a member of an enum. Raises LookupError."""
    if name in _MATH:
        return _MATH[name]
    if name in _TYPES:
        return _TYPES[name]
    owner, _, member = name.rpartition(".")
    kind = static_value(owner) if owner else None
    members = getattr(kind, "__members__", None) if isinstance(kind, type) else None
    if isinstance(members, Mapping) and member in members:
        return members[member]
    value = static_value(name)
    if isinstance(value, _CONSTANT_KINDS):
        return value
    raise LookupError(name)


@dataclass
class Verifier:
    """Verifies expressions and statements, and replaces dotted names by names of the objects that they mean.

    Attributes:
        filename: for error messages.
        namespace: the objects by their new names; grows.
        functions: the names of functions of the same module.
        local: the names that are defined where the next node runs.
        results: looks up names beyond those of traces, where a program creates its result; None elsewhere.
        advice: of the errors.
    """

    filename: str
    namespace: dict[str, Any] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    local: set[str] = field(default_factory=set)
    results: Lookup | None = None
    advice: tuple[str, ...] = ()
    _names: dict[str, str] = field(default_factory=dict)

    def error(self, problem: str, node: ast.AST) -> TraceSyntaxError:
        """An error at a line of the text; ``line`` of the exception is its number."""
        line = getattr(node, "lineno", 0)
        error = TraceSyntaxError(f"{self.filename}:{line}: {problem}", advice=self.advice)
        error.lineno = line
        return error

    # ------------------------------------------------------------ statements

    def function(self, node: ast.FunctionDef, *, boxed: bool = False) -> None:
        """Verify a function, and resolve its names in place.

        Args:
            boxed: the function shall take its arguments in one list, which it empties.
        """
        given = node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
            raise self.error("a function takes plain parameters", node)
        if node.decorator_list or node.returns is not None or getattr(node, "type_params", None):
            raise self.error("a function has no decorators and no annotation of its result", node)
        names = [argument.arg for argument in given.args]
        for argument in given.args:
            self._check_name(argument.arg, node)
            argument.annotation = None
        self.local = set(names)
        *body, last = node.body
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.error("a function ends with a return statement", last)
        for statement in body:
            self.statement(statement)
        last.value = self.expression(last.value)
        if boxed:
            given.args = [_at(ast.arg("_"), node)]
            text = f"{', '.join(names)}, = _\n_.clear()" if names else "pass"
            node.body[:0] = ast.parse(text).body

    def statement(self, node: ast.stmt) -> None:
        """Verify a statement, and resolve its names in place. Raises TraceSyntaxError for one that programs lack."""
        match node:
            case ast.Assign(targets=[ast.Name() | ast.Tuple() | ast.List() as target], value=value):
                node.value = self.expression(value)
                self._define(target)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name)) as target]) if self.results:
                self._check_local(name, node)
                target.slice = self.expression(target.slice)
                node.value = self.expression(node.value)
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[item], keywords=[]
                ) as call
            ) if self.results and name in self.local:
                call.args = [self.expression(item)]
            case ast.Expr(value=ast.Call() as call):
                node.value = self.expression(call)
            case ast.With(items=items, body=body):
                for entered in items:
                    if entered.optional_vars is not None:
                        raise self.error("a with statement has no 'as'", node)
                    entered.context_expr = self._context(entered.context_expr)
                for statement in body:
                    self.statement(statement)
            case ast.Delete(targets=targets) if all(isinstance(target, ast.Name) for target in targets):
                for deleted in targets:
                    self._check_local(deleted.id, node)  # type: ignore[attr-defined]
            case _:
                raise self.error(f"a program has no {type(node).__name__} statement such as {_text(node)}", node)

    def _define(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self._define(item)
        elif isinstance(target, ast.Name):
            self._check_name(target.id, target)
            self.local.add(target.id)
        else:
            raise self.error(f"{_text(target)} is not a name", target)

    def _check_name(self, name: str, node: ast.AST) -> None:
        if name.startswith("__") or name in self.functions or _MARK in name:
            raise self.error(f"{name} is not the name of a value", node)

    def _check_local(self, name: str, node: ast.AST) -> None:
        if name not in self.local:
            raise self.error(f"{name} is not defined before this line", node)

    def _context(self, node: ast.expr) -> ast.expr:
        name = dotted(node.func) if isinstance(node, ast.Call) else None
        if name not in _CONTEXTS:
            raise self.error(f"{_text(node)} is not one of the contexts {', '.join(sorted(_CONTEXTS))}", node)
        return self.expression(node)

    # ------------------------------------------------------------ expressions

    def expression(self, node: ast.expr) -> ast.expr:
        """An expression with resolved names, mostly in place. Raises TraceSyntaxError for one that programs lack."""
        each = self.expression
        match node:
            case ast.Name(id=name):
                if name in self.local or name in self.functions:
                    return node
                return self._named(name, constant_named, node)
            case ast.Constant():
                return node
            case ast.Call():
                return self._call(node)
            case ast.Tuple() | ast.List() | ast.Set():
                node.elts = [each(item) for item in node.elts]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert() | ast.Not()):
                node.operand = each(node.operand)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                node.value, node.slice = each(node.value), each(node.slice)
            case ast.Slice():
                node.lower, node.upper, node.step = [
                    None if part is None else each(part) for part in (node.lower, node.upper, node.step)
                ]
            case ast.Dict() if None not in node.keys:
                node.keys = [each(key) for key in node.keys if key is not None]
                node.values = [each(value) for value in node.values]
            case ast.Starred(value=ast.Name(id="inputs")) if self.results:
                pass
            case ast.BinOp(op=op) if isinstance(op, _ARITHMETIC):
                node.left, node.right = each(node.left), each(node.right)
            case ast.BoolOp():
                node.values = [each(value) for value in node.values]
            case ast.Compare(ops=ops) if all(isinstance(op, _COMPARISONS) for op in ops):
                node.left, node.comparators = each(node.left), [each(other) for other in node.comparators]
            case _:
                raise self.error(f"a program has no expression such as {_text(node)}", node)
        return node

    def _named(self, name: str, find: Lookup, node: ast.AST) -> ast.Name:
        """The new name of the object that a dotted name means."""
        known = self._names.get(name)
        if known is None:
            value = self._found(name, find, node)
            known = self._names[name] = name.replace(".", _MARK) + _MARK
            self.namespace[known] = value
        named: ast.Name = _at(ast.Name(known, ast.Load()), node)
        return named

    def _found(self, name: str, find: Lookup, node: ast.AST) -> Any:
        reason = ""
        for lookup in (find,) if self.results is None or name.startswith("torch.") else (self.results, find):
            try:
                return lookup(name)
            except LookupError as error:
                reason = reason or str(error).strip("'")
        more = f" ({reason})" if reason not in ("", name) else ""
        raise self.error(f"{name} is not a name that a program may have here{more}", node)

    def _is_value(self, node: ast.expr) -> bool:
        """Whether an expression is a value of the program, rather than the name of a module."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return not isinstance(node, ast.Name) or node.id in self.local

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        if not self._is_value(node.value):
            return self._named(dotted(node) or "", _constant_or_function, node)
        of_argument = self.results is not None and (node.attr == "__dict__" or not node.attr.startswith("_"))
        if not of_argument and not is_admitted(node.attr, CallStyle.ATTRIBUTE):
            raise self.error(f"{node.attr} is not an attribute that a program may read", node)
        node.value = self.expression(node.value)
        return node

    def _call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Attribute) and self._is_value(function.value):
            if not is_admitted(function.attr, CallStyle.METHOD):
                raise self.error(f"{function.attr} is not a method that a program may call", node)
            function.value = self.expression(function.value)
        else:
            node.func = self._callee(node, dotted(function))
        node.args = [self.expression(item) for item in node.args]
        for keyword in node.keywords:
            if keyword.arg is None and not (isinstance(keyword.value, ast.Dict) and None not in keyword.value.keys):
                raise self.error("'**' takes a dict of arguments", node)
            keyword.value = self.expression(keyword.value)
        return node

    def _callee(self, node: ast.Call, name: str | None) -> ast.expr:
        if name is None:
            raise self.error(f"{_text(node.func)} is not the name of a function", node)
        if name in self.functions and name not in self.local:
            return node.func
        if name == "functools.partial":  # a body with the sizes of the program
            first = node.args[0] if node.args else None
            if not (isinstance(first, ast.Name) and first.id in self.functions):
                raise self.error("functools.partial takes a function of this file", node)
        called = self._named(name, _function_or_type, node)
        value = self.namespace[called.id]
        if isinstance(value, type) and value not in _CREATED and value.__module__ != "torch.return_types":
            raise self.error(f"{name} is a class that a program must not call", node)
        return called


def _constant_or_function(name: str) -> Any:
    """What an argument may name."""
    try:
        return constant_named(name)
    except LookupError:
        pass
    method = name.removeprefix("torch.Tensor.")
    if method != name and is_admitted(method, CallStyle.METHOD):
        return getattr(torch.Tensor, method)
    return function_named(name)


def _function_or_type(name: str) -> Any:
    """What a program may call: a function of traces, or a class of which it creates literals."""
    if name in _CALLED:
        return _CALLED[name]
    if name.startswith("torch.return_types."):
        kind = getattr(torch.return_types, name.rpartition(".")[2], None)
        if isinstance(kind, type) and issubclass(kind, tuple):
            return kind
    return function_named(name)


def _at(node: Any, like: ast.AST) -> Any:
    return ast.copy_location(node, like)


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return repr(text if len(text) <= 80 else text[:77] + "...")


def parsed(text: str, filename: str) -> ast.Module:
    """The syntax of a text. Raises TraceSyntaxError."""
    try:
        return ast.parse(text, filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise TraceSyntaxError(f"{filename}{f':{line}' if line else ''}: {error}") from error


def verified(
    text: str, filename: str, verifier: Verifier, *, boxed: str = "", given: frozenset[str] = frozenset()
) -> ast.Module:
    """The functions in a text, with resolved names.

    Args:
        boxed: the name of the function that takes its arguments in a list, which it empties.
        given: names of functions that are defined elsewhere.

    Raises:
        TraceSyntaxError: the text is not a program, or has a name that is not allowed, with its line.
    """
    tree = parsed(text, filename)
    functions: list[ast.stmt] = []
    verifier.functions = set(given)
    for node in tree.body:
        match node:
            case ast.FunctionDef():
                if node.name in verifier.functions or node.name.startswith("__"):
                    raise verifier.error(f"{node.name} is defined twice", node)
                verifier.function(node, boxed=node.name == boxed)
                functions.append(node)
                verifier.functions.add(node.name)
            case ast.Import() | ast.ImportFrom():
                pass  # for readers; names are looked up in tables
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case _:
                raise verifier.error(f"a program has no {type(node).__name__} statement", node)
    return ast.Module(functions, [])


def compile_functions(
    text: str, name: str, filename: str, *, boxed: bool = False, results: Lookup | None = None, **given: Any
) -> Callable[..., Any]:
    """Verify a text, compile its functions, and return one of them.

    Args:
        text: a printed trace, or the function that creates a result.
        name: the function to return.
        filename: for error messages and tracebacks.
        boxed: the function takes its arguments in one list, which it empties.
        results: as in `Verifier`.
        given: functions that the text may call, by name.

    Raises:
        TraceSyntaxError: the text is not a program, or has a name that is not allowed, with its line.
    """
    verifier = Verifier(filename, results=results)
    tree = verified(text, filename, verifier, boxed=name if boxed else "", given=frozenset(given))
    if name not in verifier.functions:
        raise TraceSyntaxError(f"{filename}: there is no function {name}")
    return compile_source(text, name, {**verifier.namespace, **given}, title=filename, tree=tree)


def value_of(text: str, filename: str = "<value>") -> Any:
    """The value of a literal: numbers, text, constants of PyTorch, and containers of them.

    Raises TraceSyntaxError for any other expression.
    """
    try:
        return _immutable_value(text)
    except TypeError:
        pass
    return _parsed_value(text, filename)


def _parsed_value(text: str, filename: str) -> Any:
    node = parsed(text, filename).body
    if len(node) != 1 or not isinstance(node[0], ast.Expr):
        raise TraceSyntaxError(f"{filename}: {text[:80]!r} is not an expression")
    return _literal(node[0].value, Verifier(filename))


@functools.lru_cache(maxsize=4096)
def _immutable_value(text: str) -> Any:
    """The value of a hashable literal; of others it raises TypeError, and is not cached."""
    value = _parsed_value(text, "<value>")
    hash(value)
    return value


def _literal(node: ast.expr, verifier: Verifier) -> Any:
    each = functools.partial(_literal, verifier=verifier)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            try:
                return constant_named(dotted(node) or "")
            except LookupError:
                pass
        case ast.Tuple(elts=items):
            return tuple([each(item) for item in items])
        case ast.List(elts=items):
            return [each(item) for item in items]
        case ast.Set(elts=items):
            return {each(item) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {each(key): each(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = each(operand)
            if isinstance(value, int | float | complex):
                return -value
        case ast.Call(func=function, args=items, keywords=[]) if dotted(function) in _CONSTRUCTORS:
            try:
                value = _CONSTRUCTORS[dotted(function) or ""](*[each(item) for item in items])
            except (TypeError, ValueError, RuntimeError, OverflowError) as error:
                raise verifier.error(f"{_text(node)}: {error}", node) from error
            if not isinstance(value, range) or len(value) <= _LONGEST_RANGE:
                return value
    raise verifier.error(f"{_text(node)} is not a literal", node)


def check_condition(text: str, names: set[str], filename: str) -> str:
    """``text`` if it is an expression over these names, numbers, and functions of numbers. Raises TraceSyntaxError."""
    node = parsed(text, filename).body
    if len(node) != 1 or not isinstance(node[0], ast.Expr):
        raise TraceSyntaxError(f"{filename}: {text[:80]!r} is not a condition")
    for part in ast.walk(node[0].value):
        match part:
            case ast.Name(id=name) if name in names or name in _NUMBERS or name == "math":
                continue
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if f"math.{name}" in {**_NUMBERS, **_MATH}:
                continue
            case ast.Call(func=ast.Name() | ast.Attribute() as function, keywords=[]) if dotted(function) in _NUMBERS:
                continue
            case ast.Constant(value=int() | float() | str() | None):
                continue
            case ast.BinOp(op=op) if isinstance(op, _ARITHMETIC):
                continue
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.Tuple() | ast.IfExp():
                continue
            case ast.expr_context() | ast.operator() | ast.cmpop() | ast.boolop() | ast.unaryop():
                continue
        raise TraceSyntaxError(f"{filename}: {text[:80]!r} is not a condition on sizes and numbers")
    return text


__all__ = ["Verifier", "check_condition", "compile_functions", "dotted", "value_of", "verified"]
