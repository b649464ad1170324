"""Classes whose lookup of attributes is written in Python, by ``__getattr__`` or ``__getattribute__``."""

from __future__ import annotations

from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch

from thunder_core.checks.stored_attributes import cached_by_class
from thunder_core.ir.import_paths import module_of

LOOKUPS: Final = frozenset({"__getattr__", "__getattribute__"})
_BASES: Final = frozenset({object, torch.nn.Module})


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookup methods of a class that are written in Python.

    Attributes:
        of_all: ``__getattribute__``, called for every attribute.
        of_absent: ``__getattr__``, called for attributes that the default lookup does not find.
    """

    of_all: tuple[FunctionType, ...]
    of_absent: tuple[FunctionType, ...]


@cached_by_class
def own_lookups(kind: type) -> Lookups | None:
    """The lookup methods of a class; None if it defines none. Those of nn.Module do not count."""
    held = [base.__dict__ for base in kind.__mro__ if base not in _BASES and module_of(base) != "builtins"]
    if not any(name in namespace for namespace in held for name in LOOKUPS):
        return None

    def functions(name: str) -> tuple[FunctionType, ...]:
        methods = [namespace.get(name) for namespace in held]
        return tuple([method for method in methods if isinstance(method, FunctionType)])

    return Lookups(functions("__getattribute__"), functions("__getattr__"))


def has_own_lookup(kind: type) -> bool:
    """Whether a class defines ``__getattr__`` or ``__getattribute__``; that of nn.Module does not count."""
    return own_lookups(kind) is not None


def name_of(function: Any) -> str:
    """The qualified name of a callable, or of its class where a read of it would run the user's ``__getattr__``.

    Of a builtin function only the name: `torch.relu` is a static method of a private class.
    """
    if isinstance(function, BuiltinFunctionType):
        return function.__name__
    kind: type = type(function)
    name: str = kind.__qualname__
    return name if has_own_lookup(kind) else getattr(function, "__qualname__", name)
