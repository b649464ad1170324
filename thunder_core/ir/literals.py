"""Print literals: the arguments and results of a trace as Python expressions.

Each expression evaluates to an equal value in a module that imports `LiteralPrinter.modules` and
`LiteralPrinter.constants`. A value without such an expression is not a literal and must become an input of the trace.
"""

from __future__ import annotations

import enum
import inspect
import keyword
import re
from collections.abc import Callable, Set
from math import isfinite
from typing import Any

import torch

from thunder_core.errors import TraceError
from thunder_core.ir.import_paths import TORCH_MODULES, evaluates_to, import_path, module_of, module_of_name
from thunder_core.ir.keys import name_key, value_key
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, TensorProxy
from thunder_core.ir.size import SizeExpr
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import takes_items

CONSTANTS = {"inf": float("inf"), "nan": float("nan")}
"""Names that ``from math import ...`` provides to printed modules."""

_BUILTINS = frozenset(  # printed without a module
    {
        *("bool", "bytes", "complex", "dict", "float", "int", "list", "object"),
        *("range", "set", "slice", "str", "tuple", "type"),
    }
)
RESERVED_NAMES = _BUILTINS.union(
    [
        "_",
        "builtins",
        "check_result",
        "checks_passed",
        "computation",
        "functools",
        "inf",
        "math",
        "nan",
        "operator",
        "thunder_core",
        "torch",
    ]
)
"""Names that printed modules use; no value of a trace may have one of them."""


class LiteralPrinter:
    """Prints values as Python expressions, and collects the imports that these need.

    Args:
        body_name: returns the function name of a trace that is an argument of a higher-order symbol.
        taken: returns the names of the trace's values, which functions without an importable name must not get.
        exact: whether each printed name must evaluate to its symbol's target itself. If not, symbols of the tables are
            printed by their public names, whose functions may call the target instead.
    """

    def __init__(
        self,
        body_name: Callable[[Trace], str] | None = None,
        taken: Callable[[], Set[str]] = frozenset,
        *,
        exact: bool = False,
    ) -> None:
        self.modules: set[str] = {"torch"}
        self.constants: set[str] = set()
        self.body_name = body_name
        self.taken = taken
        self.exact = exact
        self.local_targets: dict[str, Callable[..., Any]] = {}
        self._callees: dict[Symbol, str] = {}

    def expression(self, value: Any) -> str:
        """``value`` as a Python expression. Raises TraceError when it is not a literal."""
        literals = _PRINTERS.get(type(value))
        return literals(self, value) if literals is not None else self._other(value)

    def callee(self, symbol: Symbol) -> str:
        """The printed name of a symbol of function style: dotted, with its module added to the imports.

        If no dotted name evaluates to its target, the name is a plain one that `local_targets` maps to the target.
        """
        name = self._callees.get(symbol)
        if name is None:
            name = self._callees[symbol] = self._new_callee(symbol)
        return name

    def _new_callee(self, symbol: Symbol) -> str:
        module = module_of_name(symbol.name)
        if module and self._evaluates_to_target(symbol):
            self.modules.add(module)
            return symbol.name
        if import_path(symbol.target) is not None:
            return self.path(symbol.target)
        plain = re.sub(r"\W+", "_", symbol.name)
        name, number = plain, 1
        taken = self.taken()
        while name in taken or self.local_targets.get(name, symbol.target) is not symbol.target:
            name, number = f"{plain}_{number}", number + 1
        self.local_targets[name] = symbol.target
        return name

    def _evaluates_to_target(self, symbol: Symbol) -> bool:
        if evaluates_to(symbol.name, symbol.target):
            return True
        return not self.exact and Tag.OPAQUE not in symbol.tags and symbol.executor is None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The text between the parentheses of a call."""
        expression = self.expression
        parts = [expression(item) for item in args]
        if kwargs:
            for key, item in kwargs.items():
                plain = key.isidentifier() and not keyword.iskeyword(key)
                parts.append(f"{key}={expression(item)}" if plain else f"**{{{key!r}: {expression(item)}}}")
        return ", ".join(parts)

    def index(self, value: Any) -> str:
        """The text between the brackets of a subscript."""
        if type(value) is tuple and value:
            items = [self._index_item(item) for item in value]
            return ", ".join(items) if len(items) > 1 else items[0] + ","
        return self._index_item(value)

    def _index_item(self, value: Any) -> str:
        if type(value) is not slice:
            return self.expression(value)
        start, stop = ("" if item is None else self.expression(item) for item in (value.start, value.stop))
        return f"{start}:{stop}" if value.step is None else f"{start}:{stop}:{self.expression(value.step)}"

    def _other(self, value: Any) -> str:
        if isinstance(value, enum.Flag) and import_path(value) is None:
            return f"{self.path(type(value))}({value.value!r})"  # a combination of members
        if isinstance(value, tuple):
            path, items = self.path(type(value)), tuple(value)
            if not takes_items(type(value)):
                return f"tuple.__new__({path}, {_sequence(self, items)})"
            return f"{path}({self._fields(value) if hasattr(type(value), '_fields') else _sequence(self, items)})"
        if isinstance(value, Trace) and self.body_name is not None:
            return self._body(value, self.body_name(value))
        return self.path(value)

    def _fields(self, value: Any) -> str:
        """The fields of a named tuple; those with defaults by name, unless they have them."""
        parameters = inspect.signature(type(value)).parameters
        texts: list[str] = []
        for name, item in zip(value._fields, value, strict=True):
            parameter = parameters.get(name)
            if parameter is None or parameter.default is parameter.empty:
                texts.append(self.expression(item))
            elif value_key(item, name_key) != value_key(parameter.default, name_key):
                texts.append(f"{name}={self.expression(item)}")
        return ", ".join(texts)

    def _body(self, body: Trace, name: str) -> str:
        """A trace that is an argument of an op: its size symbols are bound here, its inputs by the op."""
        if not body.sizes:
            return name
        self.modules.add("functools")
        return f"functools.partial({name}, {', '.join([f'{size}={size}' for size in body.sizes])})"

    def path(self, value: Any) -> str:
        """The dotted import path of a class, function or enum member.

        Raises TraceError if no such path evaluates to ``value`` itself.
        """
        path = import_path(value)
        if path is None:
            kind = f"{module_of(type(value))}.{type(value).__qualname__}"
            problem = f"A value of type {kind} cannot be written in a trace: {value!r:.200}"
            raise TraceError(problem, advice=("Make it an input of the trace.",))
        module, name = path
        if module == "builtins" and name in _BUILTINS:
            return name
        self.modules.add(module if module not in TORCH_MODULES else "torch")
        return f"{module}.{name}"


def _float(literals: LiteralPrinter, value: float) -> str:
    if isfinite(value):
        return repr(value)
    name = "nan" if value != value else "inf"
    literals.constants.add(name)
    return f"-{name}" if value < 0 else name


def _complex(literals: LiteralPrinter, value: complex) -> str:
    return f"complex({_float(literals, value.real)}, {_float(literals, value.imag)})"


def _sequence(literals: LiteralPrinter, value: tuple[Any, ...]) -> str:
    if len(value) == 1:
        return f"({literals.expression(value[0])},)"
    return f"({', '.join([literals.expression(item) for item in value])})"


def _list(literals: LiteralPrinter, value: list[Any]) -> str:
    return f"[{', '.join([literals.expression(item) for item in value])}]"


def _dict(literals: LiteralPrinter, value: dict[Any, Any]) -> str:
    return (
        "{"
        + ", ".join([f"{literals.expression(key)}: {literals.expression(item)}" for key, item in value.items()])
        + "}"
    )


def _slice(literals: LiteralPrinter, value: slice) -> str:
    return f"slice({', '.join([literals.expression(item) for item in (value.start, value.stop, value.step)])})"


def _name(_: LiteralPrinter, value: Any) -> str:
    name: str = value.name
    return name


def _repr(_: LiteralPrinter, value: Any) -> str:
    return repr(value)


def _torch_constant(_: LiteralPrinter, value: Any) -> str:
    text = str(value)  # ``str`` of dtypes, layouts and memory formats is their import path
    return text if text.startswith("torch.") else f"torch.{text}"


_PRINTERS: dict[type, Callable[[LiteralPrinter, Any], str]] = {
    TensorProxy: _name,
    NumberProxy: _name,
    OpaqueProxy: _name,
    type(None): _repr,
    bool: _repr,
    int: _repr,
    str: _repr,
    bytes: _repr,
    range: _repr,
    type(Ellipsis): lambda _, value: "...",
    float: _float,
    complex: _complex,
    SizeExpr: lambda _, value: str(value),
    tuple: _sequence,
    list: _list,
    dict: _dict,
    slice: _slice,
    torch.Size: lambda literals, value: f"torch.Size({_list(literals, list(value))})",
    torch.dtype: _torch_constant,
    torch.layout: _torch_constant,
    torch.memory_format: _torch_constant,
    torch.qscheme: _torch_constant,
    torch.device: lambda _, value: f'torch.device("{value}")',
}
