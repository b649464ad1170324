"""The operations of Thunder and of installed plugins that a file may name, without the front end that records them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, Final

from thunder_core import symbols as public_symbols
from thunder_core.errors import PluginError
from thunder_core.ir.symbol import Symbol
from thunder_core.symbols import admitted

_EXECUTABLE: Final = {
    "thunder_core.symbols.checkpointing": ("CHECKPOINT", "CHECKPOINT_WITH_WRITES"),
    "thunder_core.symbols.checks": ("CHECK_TRUE", "CHECK_METADATA", "CHECK_SHAPES", "CHECK_VALUE", "SIZE_OF"),
    "thunder_core.symbols.control_flow": ("COND",),
    "thunder_core.symbols.functions": ("CLEAR_CACHE", "REBASED"),
    "thunder_core.symbols.printing": ("PRINT_VALUES", "LOG_VALUES", "WARN"),
}
"""Modules with symbols of executable programs, and the variables that hold these symbols."""

_WITH_AUTOGRAD: Final = {"thunder_core.autodiff.derivatives.by_eager": ("record_graph", "gradients_of")}
"""Functions of ops whose derivative PyTorch's autograd records in each call; their module imports the compiler."""


def symbols_of(module: ModuleType) -> Iterator[Symbol]:
    """The symbols among the global variables of a module, and in their dicts."""
    for value in [*vars(module).values()]:
        if isinstance(value, Symbol):
            yield value
        elif isinstance(value, dict):
            yield from [item for pair in value.items() for item in pair if isinstance(item, Symbol)]


@cache
def _executable_symbols() -> dict[str, Symbol]:
    """The symbols of Thunder's that compiled programs call, by name."""
    modules = {name: importlib.import_module(name) for name in _EXECUTABLE}
    symbols = [vars(modules[name])[variable] for name, names in _EXECUTABLE.items() for variable in names]
    return {symbol.name: symbol for symbol in [*symbols, *symbols_of(importlib.import_module(_GENERATORS))]}


_GENERATORS: Final = "thunder_core.symbols.generators"


def executable_function(name: str) -> Any:
    """The function that a compiled program names so: an operation of Thunder's or of a plugin.

    Raises:
        LookupError: there is none.
    """
    symbol = _executable_symbols().get(name)
    if symbol is not None:
        return symbol.target
    path, _, plain = name.rpartition(".")
    if plain in _WITH_AUTOGRAD.get(path, ()):
        return vars(importlib.import_module(path))[plain]
    if is_operation(name):
        return vars(sys.modules[path])[plain]
    function = _function_of_plugin(name)
    if function is None:
        raise LookupError(name)
    return function


def _function_of_plugin(name: str) -> Any:
    """The function of an installed plugin that is printed so, if one of its symbols, claims or derivatives calls it."""
    if plugin_of(name) is None:
        return None
    load_plugin(name)
    path, _, plain = name.rpartition(".")
    try:
        module = importlib.import_module(path)  # of the package of the plugin, which is imported already
    except ModuleNotFoundError:
        return None
    for symbol in symbols_of(module):
        if symbol.name == name:
            return symbol.target
    function = vars(module).get(plain)
    package = name.partition(".")[0]
    modules = [each for key, each in [*sys.modules.items()] if key == package or key.startswith(f"{package}.")]
    called = {id(one) for each in modules for one in _called_by_claims(each)}
    return function if isinstance(function, FunctionType) and id(function) in called else None


def _called_by_claims(module: ModuleType) -> Iterator[Any]:
    """The functions that claims and derivatives among the global variables of a module call.

    They are in a `Claim` or a `DerivativePair`, in lists of these, or beside a `DerivativePair` in a data class.
    """
    for value in [*vars(module).values()]:
        for each in value if isinstance(value, list | tuple) else (value,):
            yield from _functions_in(each)


def _functions_in(value: Any) -> Iterator[Any]:
    from thunder_core.executors.executor import DerivativePair
    from thunder_core.executors.operator_executor import Claim

    if not is_dataclass(value) or isinstance(value, type):
        return
    held = [getattr(value, each.name) for each in fields(value)]
    pairs = [each for each in held if isinstance(each, DerivativePair)]
    if isinstance(value, Claim):
        yield value.run
    elif isinstance(value, DerivativePair) or pairs:
        yield from held
    for pair in pairs:
        yield from (pair.forward, pair.backward)


def is_operation(name: str) -> bool:
    """Whether this is a public function of Thunder for traces."""
    path, _, plain = name.rpartition(".")
    if path == public_symbols.__name__:
        return plain in public_symbols.__all__ and plain != "recorded"
    return admitted.is_function_for_traces(name)


def is_operation_of_plugin(name: str) -> bool:
    """Whether this is a symbol in a loaded module of a plugin."""
    module = sys.modules.get(name.rpartition(".")[0])
    if module is None or plugin_of(name) is None:
        return False
    return any(symbol.name == name for symbol in symbols_of(module))


def plugin_of(name: str) -> str | None:
    """The installed plugin in whose package a name is; None if there is none."""
    from thunder_core.plugins.host import host
    from thunder_core.plugins.states import PluginState

    package = name.partition(".")[0]
    if package in ("torch", "thunder_core", ""):
        return None
    records = [record for record in host().records if record.target.partition(":")[0].partition(".")[0] == package]
    usable = [record for record in records if record.state in (PluginState.AVAILABLE, PluginState.LOADED)]
    return usable[0].name if usable else None


def load_plugin(name: str) -> None:
    """Load the plugin in whose package a name is, with its symbols. Raises LookupError if that fails."""
    plugin = plugin_of(name)
    if plugin is None:
        return
    from thunder_core.plugins.host import host
    from thunder_core.plugins.states import Offered

    try:
        record = host().load(plugin)
        if record.specs:
            host().use(Offered(record, record.specs[0]))
    except PluginError as error:
        raise LookupError(f"{name}: {error}") from error
