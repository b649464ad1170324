"""What classes offer by name, and what their own lookup of attributes gives.

What an object is asked for and its class does not define comes from the object itself, from a base, or from Python:
``bool(x)``, ``x == y``, methods of lists and tensors. A class that defines it after a program was recorded makes that
another program, though nothing that the program read has changed. What a class does define is guarded where it is read.
"""

from __future__ import annotations

import enum
import functools
import os
import sys
from collections.abc import Iterator
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType
from typing import Any

import torch

from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.conditions import DEFINED_NAMES
from thunder_core.guards.source import ConstantSource

_BASES = frozenset({object, torch.nn.Module})
_LIBRARY_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType)


class ClassNames:
    """Class attributes by name, for the duration of one observation (classes may be patched between two)."""

    def __init__(self) -> None:
        self._known: dict[type, dict[str, Any]] = {}

    def of(self, kind: type) -> dict[str, Any]:
        """Name to class attribute, not bound, most derived class first; bases that everything has are left out."""
        names = self._known.get(kind)
        if names is None:
            names = self._known[kind] = {}
            for base in reversed(kind.__mro__):
                if base not in _BASES:
                    names.update(base.__dict__)
        return names


def function_behind(attribute: Any) -> tuple[str, FunctionType] | None:
    """The Python function that a class attribute calls, and the suffix that leads to it from the class."""
    if isinstance(attribute, FunctionType):
        return "", attribute
    if isinstance(attribute, classmethod):
        function = attribute.__func__
        return ("__func__", function) if isinstance(function, FunctionType) else None
    if isinstance(attribute, staticmethod):
        function = attribute.__func__
        return ("", function) if isinstance(function, FunctionType) else None
    if isinstance(attribute, property):
        return ("fget", attribute.fget) if isinstance(attribute.fget, FunctionType) else None
    if isinstance(attribute, functools.cached_property):
        return ("func", attribute.func) if isinstance(attribute.func, FunctionType) else None
    return None


def constant_behind(attribute: Any) -> Any:
    """What reading the attribute gives; of a static method that is no Python function: what it wraps."""
    return attribute.__func__ if isinstance(attribute, staticmethod) else attribute


def is_descriptor(attribute: Any) -> bool:
    """True when reading the attribute from an object runs code (or returns something else than it)."""
    return isinstance(attribute, _LIBRARY_DESCRIPTORS) or hasattr(type(attribute), "__get__")


def defined_names_checks(kind: type) -> Iterator[Check]:
    """Checks of the class of an object and its bases, as far as they are the user's and not of installed packages."""
    for base in kind.__mro__:
        if kind_of_class(base) is CodeKind.USER and not issubclass(base, enum.Enum) and not _is_installed(base):
            yield Check(ConstantSource(base, base.__name__), DEFINED_NAMES, frozenset(vars(base)))


def _is_installed(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return f"{os.sep}site-packages{os.sep}" in str(getattr(module, "__file__", ""))
