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
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.conditions import DEFINED_NAMES
from thunder_core.guards.node import MISSING
from thunder_core.guards.source import ConstantSource

COMPUTED = object()
"""An attribute that is computed from tensors, or is one that is computed."""
_lookups: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
_replaced: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
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


def replaces_lookup(kind: type) -> bool:
    """True when the class defines ``__getattribute__`` in Python: what the object holds may not be what is read."""
    known = _replaced.get(kind)
    if known is None:
        found = (base.__dict__.get("__getattribute__") for base in kind.__mro__ if base not in _BASES)
        known = _replaced[kind] = any(isinstance(method, FunctionType) for method in found)
    return known


def has_own_lookup(kind: type) -> bool:
    """True when the class defines ``__getattr__`` or ``__getattribute__`` in Python (nn.Module's does not count)."""
    known = _lookups.get(kind)
    if known is None:
        known = _lookups[kind] = _finds_itself(kind)
    return known


def _finds_itself(kind: type) -> bool:
    for base in kind.__mro__:
        if base in _BASES:
            continue
        if "__getattr__" in base.__dict__ or ("__getattribute__" in base.__dict__ and base.__module__ != "builtins"):
            return True
    return False


def defined_names_checks(kind: type) -> Iterator[Check]:
    """Checks of the class of an object and its bases, as far as they are the user's and not of installed packages."""
    for base in kind.__mro__:
        if kind_of_class(base) is CodeKind.USER and not issubclass(base, enum.Enum) and not _is_installed(base):
            yield Check(ConstantSource(base, base.__name__), DEFINED_NAMES, frozenset(vars(base)))


def _is_installed(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return f"{os.sep}site-packages{os.sep}" in str(getattr(module, "__file__", ""))


def ask(value: Any, name: str) -> Any:
    """The attribute, computed by the object's class; a marker when there is none, whatever the class says about it.

    Another marker stands for what takes tensors to compute. That is no read: when the program asks for it, the frame of
    the code that computes it is observed.
    """
    try:
        with _NoTensors():
            return getattr(value, name)
    except _ComputesTensors:
        return COMPUTED
    except Exception:  # noqa: BLE001  the user's code may raise anything, and would raise it again in the program
        return MISSING


class _ComputesTensors(BaseException):
    """No `Exception`: the user's code is not to handle it."""


class _NoTensors(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise _ComputesTensors
