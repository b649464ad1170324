"""The names that a file may use: symbols, functions, classes and constants of PyTorch, of Thunder and of plugins.

A name is looked up in tables and in what is imported already; nothing is imported because a file names it. The only
code of others that is run is that of an installed plugin, which defines symbols when it is loaded.
"""

from __future__ import annotations

import builtins
import enum
import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import torch

from thunder_core.ir.literals import CONSTANTS
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.symbols.admitted import is_admitted, static_value
from thunder_core.symbols.checks import CHECK_SIZES
from thunder_core.symbols.registry import registry
from thunder_saving.fakes import SPECIAL_SYMBOLS
from thunder_saving.operations import is_operation, is_operation_of_plugin, load_plugin, symbols_of

_MODULES: Final = (
    "thunder_frontend.record.hooks",
    "thunder_frontend.record.printing",
    "thunder_frontend.record.switch_changes",
    "thunder_core.autodiff.derivatives.by_eager",
    "thunder_core.autodiff.derivatives.by_hook",
    "thunder_core.symbols.captured",
    "thunder_core.symbols.checkpointing",
    "thunder_core.symbols.checks",
    "thunder_core.symbols.control_flow",
    "thunder_core.symbols.functions",
    "thunder_core.symbols.generators",
    "thunder_core.symbols.gradient_hooks",
    "thunder_core.symbols.host_memory",
    "thunder_core.symbols.printing",
)
"""Modules whose global variables are symbols that traces have."""

_TYPES: Final = {
    kind.__name__: kind
    for kind in (bool, bytes, complex, dict, float, int, list, object, range, set, slice, str, tuple, type)
}
_CONSTANTS: Final = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
_CONSTRUCTORS: Final = (complex, range, slice, torch.Size, torch.device)


class Names:
    """Looks up the names in a file.

    Args:
        functions: functions and classes of the user's that the file may name too, by name.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions
        self._local: dict[str, Symbol] = {}

    def symbol(self, name: str, style: CallStyle) -> Symbol:
        """The symbol that is printed as ``name``. Raises LookupError if a file must not name it."""
        if style is CallStyle.FUNCTION:
            own = self._users(name) or _own_symbol(name)
            if own is not None:
                return own
            load_plugin(name)
        if is_admitted(name, style) or (style is CallStyle.FUNCTION and _is_operation(name)):
            return registry.symbol_named(name, style)
        raise LookupError(name)

    def _users(self, name: str) -> Symbol | None:
        if name not in self.functions or not callable(self.functions[name]):
            return None
        if name not in self._local:
            known = registry.symbol_of(self.functions[name]) if "." in name else None
            local = known is None or Tag.LOCAL in known.tags or known.name != name
            tags = frozenset({Tag.OPAQUE, Tag.LOCAL})
            self._local[name] = Symbol(name, self.functions[name], tags=tags) if local or known is None else known
        return self._local[name]

    def value(self, name: str) -> Any:
        """The constant, class or function with this name, as an argument. Raises LookupError."""
        if name in self.functions:
            return self.functions[name]
        if name in CONSTANTS:
            return CONSTANTS[name]
        plain = name.removeprefix("builtins.")
        if plain in _TYPES:
            return _TYPES[plain]
        warning = getattr(builtins, plain, None)
        if isinstance(warning, type) and issubclass(warning, Warning):
            return warning
        if name.startswith("torch.nn.attention."):
            importlib.import_module("torch.nn.attention")
        member = _enum_member(name)
        if member is not None:
            return member
        method = name.removeprefix("torch.Tensor.")
        if method != name and is_admitted(method, CallStyle.METHOD):
            return getattr(torch.Tensor, method)
        value = _static(name)
        if isinstance(value, _CONSTANTS) or value in _CONSTRUCTORS or _is_result_type(value):
            return value
        return self.symbol(name, CallStyle.FUNCTION).target

    def constructor(self, name: str) -> type:
        """The class of which a file may create an instance, of plain arguments. Raises LookupError."""
        value = self.functions.get(name) or _flags(name) or self.value(name)
        if isinstance(value, type) and (value in _CONSTRUCTORS or name in self.functions or _is_created(value)):
            return value
        raise LookupError(name)


def _is_result_type(value: Any) -> bool:
    """Whether this is a named tuple of PyTorch, as `torch.max` returns one."""
    return isinstance(value, type) and issubclass(value, tuple) and value.__module__ == "torch.return_types"


def _is_created(kind: type) -> bool:
    return _is_result_type(kind) or issubclass(kind, enum.Flag)


def _static(name: str) -> Any:
    """The object with a dotted name in the imported modules of PyTorch; None if there is none."""
    try:
        return static_value(name) if name.startswith("torch.") else None
    except LookupError:
        return None


def _enum_member(name: str) -> Any:
    """The member of an enum of PyTorch; None if this is not one."""
    owner, _, member = name.rpartition(".")
    members = getattr(_static(owner), "__members__", None)
    return members.get(member) if isinstance(members, Mapping) else None


def _flags(name: str) -> Any:
    kind = _static(name)
    return kind if isinstance(kind, type) and issubclass(kind, enum.Flag) else None


@cache
def _own_symbols() -> dict[str, Symbol]:
    """The symbols that Thunder defines, by name."""
    modules = [importlib.import_module(name) for name in _MODULES]
    symbols = {symbol.name: symbol for module in modules for symbol in symbols_of(module)}
    del symbols[CHECK_SIZES.name]  # its conditions are Python expressions
    return {**symbols, **SPECIAL_SYMBOLS}


def _is_operation(name: str) -> bool:
    return is_operation(name) or is_operation_of_plugin(name)


def _own_symbol(name: str) -> Symbol | None:
    return _own_symbols().get(name)
