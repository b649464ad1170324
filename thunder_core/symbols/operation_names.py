"""The names that people have for an operation, and patterns of these: options of executors are written in them.

An operation has the dotted names of all functions, methods and in-place variants that its row lists, or its own where
it has no row: ``torch.softmax``, ``torch.Tensor.softmax``, ``torch.nn.functional.softmax``. The leading ``torch.`` may
be left out, and methods and properties have their bare name too: ``nn.functional.silu``, ``softmax``. An operator of
``torch.ops`` also has the name of its packet: ``torch.ops.aten.add`` as well as ``torch.ops.aten.add.Tensor``.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import cache, lru_cache
from types import ModuleType
from typing import Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import dispatch_get_all_op_names
from thunder_core.symbols.control_flow import COND
from thunder_core.symbols.naming import existing_function, printed_name, public_callables
from thunder_core.symbols.registry import registry
from thunder_core.symbols.row import Row

_METHOD: Final = "torch.Tensor."
_OPERATOR: Final = "torch.ops."
_CALLED_AS: Final = {COND.name: "torch.cond"}
"""The functions that programs call, for symbols of other names that have no row."""


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern with ``*`` and ``?`` matches one of the names; upper and lower case differ."""
    match = _expression(pattern).match
    return any(match(name) for name in names)


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def called_symbol(op: BoundSymbol) -> Symbol:
    """The symbol of a function that an op calls, its first argument (functionalized writes); that of other ops."""
    function = op.args[0] if op.args else None
    return registry.symbol_of(function) if callable(function) and import_path(function) is not None else op.symbol


def names_of(symbol: Symbol) -> tuple[str, ...]:
    """All names of the operation that a symbol is, that which traces print among them."""
    row = registry.row_of(symbol)
    if row is not None:
        return _names_of_row(row.name, row.style)
    return _names_without_row(symbol.name, symbol.style)


@lru_cache(maxsize=4096)
def _names_without_row(name: str, style: CallStyle) -> tuple[str, ...]:
    dotted = _CALLED_AS.get(name, name) if style is CallStyle.FUNCTION else _METHOD + name
    return tuple(dict.fromkeys([name, *_all_forms([dotted])]))


@lru_cache(maxsize=4096)
def _names_of_row(name: str, style: CallStyle) -> tuple[str, ...]:
    row = registry.catalogue.rows[printed_name(name, style), style]
    return tuple(dict.fromkeys([name, *_all_forms(_spellings(row))]))


def _spellings(row: Row) -> list[str]:
    """Dotted names of the functions of a row that the installed PyTorch has."""
    names = [spelling.name for spelling in (*row.spellings, *row.inplace)]
    return [name for name in dict.fromkeys(names) if existing_function(name) is not None]


def _all_forms(names: Iterable[str]) -> Iterator[str]:
    """The names, other names of the same functions, and all of these in their shorter forms."""
    for name in names:
        function = existing_function(name) if name.startswith("torch.") and not name.startswith(_OPERATOR) else None
        for alias in (name, *(() if function is None else _aliases().get(function, ()))):
            yield from _forms(alias)


def _forms(name: str) -> Iterator[str]:
    """A dotted name, without ``torch.``, without the class of a method, without the overload of an operator."""
    yield name
    if name.startswith("torch."):
        yield name.removeprefix("torch.")
    if name.startswith(_METHOD):
        yield name.removeprefix(_METHOD)
    elif name.startswith(_OPERATOR) and name.count(".") > 3:
        yield from _forms(name.rpartition(".")[0])


@cache
def _aliases() -> dict[object, tuple[str, ...]]:
    """Dotted names of PyTorch's functions, by the functions; of those that have several."""
    by_function: dict[object, tuple[str, ...]] = {}
    for name, function in public_callables():
        by_function[function] = (*by_function.get(function, ()), name)
    return {function: names for function, names in by_function.items() if len(names) > 1}


def known_names() -> frozenset[str]:
    """All names of operations that are known by now: of rows, of PyTorch's functions and methods, and of operators of
    ``torch.ops`` that are registered.
    """
    rows = registry.catalogue.rows.values()
    names = {name for row in rows for name in _names_of_row(row.name, row.style)}
    return frozenset(names) | _names_of_pytorch() | _names_of_operators(len(_operators()))


@cache
def _names_of_pytorch() -> frozenset[str]:
    functions = [name for name, function in public_callables() if not isinstance(function, type)]
    members = [_METHOD + name for name in dir(torch.Tensor) if not isinstance(getattr(torch.Tensor, name), type)]
    return frozenset([form for name in (*functions, *members) for form in _forms(name)])


@lru_cache(maxsize=1)
def _names_of_operators(count: int) -> frozenset[str]:
    """Names of all operators; ``count`` is their number, which grows as libraries are imported."""
    dotted = [_OPERATOR + name.replace("::", ".") for name in _operators()]
    overloads = [name if name.count(".") > 3 else f"{name}.default" for name in dotted]
    return frozenset([form for name in overloads for form in _forms(name)])


def _operators() -> list[str]:
    """All registered operators, as ``namespace::name.overload``; none where the installed PyTorch has no list."""
    return [] if is_missing(dispatch_get_all_op_names) else dispatch_get_all_op_names()


def may_be_named_later(pattern: str) -> bool:
    """Whether a pattern is for a namespace of which not all operations are known: an operator library that is not
    imported, or functions of a package other than PyTorch. Modules that have composites are known: these have rows, and
    the module itself says what else it has.
    """
    start = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    for operators in (_OPERATOR, "ops."):
        if start.startswith(operators):
            namespace, dot, _ = start.removeprefix(operators).partition(".")
            return not dot or not any(name.startswith(f"{namespace}::") for name in _operators())
    namespace, dot, _ = start.rpartition(".")
    if not dot or namespace.partition(".")[0] == "torch" or not _exists(namespace):
        return False
    module = sys.modules.get(namespace)
    return module is None or not _has_composites(module) or matches(pattern, _functions(module))


def _has_composites(module: ModuleType) -> bool:
    rows = registry.catalogue.rows.values()
    return any(row.name.rpartition(".")[0] == module.__name__ for row in rows if Tag.COMPOSITE in row.tags)


def _exists(namespace: str) -> bool:
    """Whether there may be such a module, or a class in one, decided without importing anything."""
    package, *parts = namespace.split(".")
    value: object = sys.modules.get(package)
    if value is None:
        return package.isidentifier() and importlib.util.find_spec(package) is not None
    path = package
    for part in parts:
        path, owner = f"{path}.{part}", value
        value = getattr(owner, part, None)
        if value is None:
            return hasattr(owner, "__path__") and importlib.util.find_spec(path) is not None
    return True


def is_function_of_pytorch(pattern: str) -> bool:
    """Whether a pattern matches functions of a module of PyTorch that programs seldom call: ``torch.distributed``."""
    start = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    module = sys.modules.get(start.rpartition(".")[0]) if start.startswith("torch.") else None
    return module is not None and matches(pattern, _functions(module))


def _functions(module: ModuleType) -> list[str]:
    return [
        f"{module.__name__}.{name}"
        for name, value in vars(module).items()
        if callable(value) and not isinstance(value, type)
    ]
