"""Classes that define ``__getattr__`` or ``__getattribute__`` in Python.

A guard on an attribute that such a method computes calls the method again, at each call of the program. That is right
for methods that only look something up. Others (which count, log, cache, or compute from tensors) would do so once more
for each guard, so guards do not call them: their frames are observed like those of methods, and what they read is
guarded.

Every read of an object, also that of a guard, calls its ``__getattribute__``: guards read such objects unless the code
of the method has side effects; then a program that reads them is refused.

What an object is asked for and its class does not define comes from the object itself, from a base, or from Python:
``bool(x)``, ``x == y``, methods of lists and tensors. A class that defines it after a program was recorded makes that
another program, though nothing that the program read has changed. What a class does define is guarded where it is read.
"""

from __future__ import annotations

import builtins
import enum
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.guards.abstract_stack import ATTRIBUTE_LOADS, GLOBAL_LOADS, JOIN, StackValue, steps
from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of, kind_of_class
from thunder_core.guards.conditions import DEFINED_NAMES
from thunder_core.guards.node import MISSING, namespace_of
from thunder_core.guards.plain import ATOM_TYPES
from thunder_core.guards.source import ConstantSource

COMPUTED = object()
"""In place of an attribute that only code with side effects, or with tensor computations, can compute."""
_BASES = frozenset({object, torch.nn.Module})
_DEEPEST = 4
_MOST_PARTS = 64
LOOKUPS = frozenset({"__getattr__", "__getattribute__"})
_SPECIAL = frozenset({"__contains__", "__getitem__", "__missing__", "__next__"})  # methods that instructions call
_CACHES = (functools.cached_property, functools._lru_cache_wrapper)
_NO_HOLDERS = (torch.Tensor, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_HARMLESS = frozenset(
    {"BINARY_SLICE", "BINARY_SUBSCR", "BUILD_CONST_KEY_MAP", "BUILD_LIST", "BUILD_MAP", "BUILD_SET"}
    | {"BUILD_SLICE", "BUILD_STRING", "BUILD_TUPLE", "CALL", "CALL_KW", "CHECK_EXC_MATCH", "COMPARE_OP", "CONTAINS_OP"}
    | {"CONVERT_VALUE", "COPY_FREE_VARS", "DELETE_FAST", "END_FOR", "FORMAT_SIMPLE", "FORMAT_VALUE", "FOR_ITER"}
    | {"FORMAT_WITH_SPEC", "GET_ITER", "IS_OP", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD"}
    | {"JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "LOAD_ASSERTION_ERROR", "LOAD_ATTR", "LOAD_CONST"}
    | {"LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL"}
    | {"LOAD_METHOD", "LOAD_SUPER_ATTR", "MAKE_CELL", "NOP", "POP_EXCEPT", "POP_JUMP_BACKWARD_IF_FALSE"}
    | {"POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_TRUE"}
    | {"POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE"}
    | {"POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "POP_JUMP_IF_TRUE"}
    | {"POP_TOP", "PUSH_EXC_INFO", "PUSH_NULL", "RAISE_VARARGS", "RERAISE", "RESUME", "RETURN_CONST", "RETURN_VALUE"}
    | {"STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "TO_BOOL", "UNARY_NOT", JOIN}
)
"""Instructions of CPython 3.11 to 3.13 that store nothing but local variables and run no code but what they call."""
_BINARY_OPERATORS = 13  # operands of BINARY_OP below this one are operators, above it assignments like ``+=``
_FUNCTIONS = frozenset(
    {"bool", "callable", "dict", "float", "frozenset", "getattr", "hasattr", "id", "int", "isinstance", "issubclass"}
    | {"len", "list", "object", "repr", "set", "str", "super", "tuple", "type", "vars"}
) | {name for name, held in vars(builtins).items() if isinstance(held, type) and issubclass(held, Exception)}
"""Builtins that change nothing."""
_METHODS = frozenset(
    {"__contains__", "__getattr__", "__getattribute__", "__getitem__", "count", "endswith", "format", "get", "index"}
    | {"items", "join", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rpartition"}
    | {"rsplit", "rstrip", "split", "startswith", "strip", "upper", "values"}
)
"""Methods of objects, strings and dictionaries that change nothing."""
_STORES = frozenset(
    {"DELETE_ATTR", "DELETE_DEREF", "DELETE_GLOBAL", "DELETE_SUBSCR", "STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL"}
    | {"STORE_SLICE", "STORE_SUBSCR"}
)
_CHANGING = frozenset(
    {"__delattr__", "__delitem__", "__setattr__", "__setitem__", "add", "append", "appendleft", "clear", "delattr"}
    | {"discard", "exec", "extend", "insert", "pop", "popitem", "popleft", "print", "remove", "reverse", "setattr"}
    | {"setdefault", "sort", "update", "write"}
)
"""Functions, and methods of containers, that change something."""


@functools.lru_cache(maxsize=4096)
def only_looks_up(code: CodeType) -> bool:
    """Whether code changes nothing but its local variables, and calls nothing but functions that change nothing.

    Calls are judged by name. An instruction, a function or a method that is not listed counts as a change, except for
    functions of PyTorch, which stop the reader.
    """
    for step in steps(code):
        if step.operation == "BINARY_OP":
            if step.argument >= _BINARY_OPERATORS:
                return False
        elif step.operation not in _HARMLESS:
            return False
        if step.operation in ("CALL", "CALL_KW") and not _changes_nothing_when_called(step.callee):
            return False
    return True


def _changes_nothing_when_called(callee: StackValue) -> bool:
    if callee.chain and callee.chain[0] == "torch":
        return True
    if callee.owner is not None:
        return callee.label in _METHODS
    return bool(callee.chain) and callee.label in _FUNCTIONS


def may_answer(code: CodeType) -> bool:
    """Whether guards may call a lookup method with this code."""
    return _may_run(code, code.co_name == "__getattribute__")


def _may_run(code: CodeType, of_all: bool) -> bool:
    return not _changes(code) if of_all else only_looks_up(code)


@functools.lru_cache(maxsize=4096)
def _changes(code: CodeType) -> bool:
    """Whether the code stores something, or names a function that does."""
    for step in steps(code):
        if step.operation in _STORES or (step.operation == "BINARY_OP" and step.argument >= _BINARY_OPERATORS):
            return True
        if step.operation in ATTRIBUTE_LOADS | GLOBAL_LOADS and step.name in _CHANGING:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Lookups:
    """The lookup methods of a class that are written in Python.

    Attributes:
        of_all: ``__getattribute__``, called for every attribute.
        of_absent: ``__getattr__``, called for attributes that are not found otherwise.
    """

    of_all: tuple[FunctionType, ...]
    of_absent: tuple[FunctionType, ...]


_lookups: WeakKeyDictionary[type, _Lookups | None] = WeakKeyDictionary()


def _own_lookups(kind: type) -> _Lookups | None:
    """The lookups of a class; None if it has none of its own. Those of nn.Module do not count."""
    try:
        return _lookups[kind]
    except KeyError:
        answer = _lookups[kind] = _defined_lookups(kind)
        return answer


def _defined_lookups(kind: type) -> _Lookups | None:
    held = [base.__dict__ for base in kind.__mro__ if base not in _BASES and base.__module__ != "builtins"]
    if not any(name in namespace for namespace in held for name in LOOKUPS):
        return None

    def functions(name: str) -> tuple[FunctionType, ...]:
        methods = [namespace.get(name) for namespace in held]
        return tuple([method for method in methods if isinstance(method, FunctionType)])

    return _Lookups(functions("__getattribute__"), functions("__getattr__"))


def has_own_lookup(kind: type) -> bool:
    """True when the class defines ``__getattr__`` or ``__getattribute__`` (nn.Module's does not count)."""
    return _own_lookups(kind) is not None


def replaces_lookup(kind: type) -> bool:
    """True when the class defines ``__getattribute__`` in Python: what the object holds may not be what is read."""
    lookups = _own_lookups(kind)
    return lookups is not None and bool(lookups.of_all)


def may_be_asked(value: Any, name: str) -> bool:
    """Whether an object, and those that its lookup may ask in turn, answer for an attribute without any change."""
    if not has_own_lookup(type(value)):
        return True
    return _changes_nothing(value, name, frozenset(), 0)


def _changes_nothing(value: Any, name: str, names: frozenset[str], depth: int) -> bool:
    """Whether `value`, which a lookup reached by the names in its code, answers for an attribute without any change."""
    kind = type(value)
    if kind in ATOM_TYPES or isinstance(value, _NO_HOLDERS):
        return True
    if depth > _DEEPEST:
        return False
    if kind in (list, tuple, set, frozenset, dict):
        parts = tuple(value.values() if kind is dict else value)
        return len(parts) <= _MOST_PARTS and all(_changes_nothing(part, name, names, depth + 1) for part in parts)
    lookups = _own_lookups(kind)
    run: tuple[FunctionType, ...] = ()
    if lookups is not None:
        if not all(_is_harmless(function, of_all=True) for function in lookups.of_all):
            return False
        if depth == 0 and _holds(value, name):  # nothing else runs, and every guard has to read through it
            return True
        run = () if _holds(value, name) else lookups.of_absent
        if not all(map(_is_harmless, run)):
            return False
    names |= {part for function in run for part in _names_in(function.__code__)}
    if not all(_answers_itself(kind, part) for part in names | {name} | _SPECIAL):
        return False
    reached = [_held(value, part) for part in names]
    reached += [function.__globals__.get(part, MISSING) for function in run for part in function.__code__.co_names]
    return all(part is MISSING or _changes_nothing(part, name, names, depth + 1) for part in reached)


def _names_in(code: CodeType) -> Iterator[str]:
    """The names that code asks for, as attributes or as keys."""
    yield from code.co_names
    yield from (constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier())


def _on_class(kind: type, name: str) -> Any:
    """What a class or one of its bases has under a name, not bound; a marker for nothing."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), MISSING)


def _holds(value: Any, name: str) -> bool:
    return name in (namespace_of(value) or ()) or _on_class(type(value), name) is not MISSING


def _held(value: Any, name: str) -> Any:
    """What an object holds under a name, as an attribute, in a slot or as a child of a module; else a marker."""
    own = namespace_of(value) or {}
    if name in own:
        return own[name]
    if isinstance(value, torch.nn.Module) and name in (own.get("_modules") or {}):
        return own["_modules"][name]
    slot = _on_class(type(value), name)
    try:
        return slot.__get__(value) if isinstance(slot, MemberDescriptorType) else MISSING
    except AttributeError:  # nothing is in the slot
        return MISSING


def _is_harmless(function: FunctionType, *, of_all: bool = False) -> bool:
    code = function.__code__
    return kind_of(code) is CodeKind.IGNORED or _may_run(code, of_all)


def _answers_itself(kind: type, name: str) -> bool:
    """Whether what a class has under a name, if anything, changes nothing when lookups use it."""
    attribute = _on_class(kind, name)
    if isinstance(attribute, property):
        attribute = attribute.fget
    if isinstance(attribute, FunctionType):
        return name in LOOKUPS or _is_harmless(attribute)
    if name in ("__missing__", "__next__"):  # of a `collections.defaultdict`, of an iterator
        return attribute is MISSING or attribute is None
    return not isinstance(attribute, _CACHES)


def ask(value: Any, name: str) -> Any:
    """The attribute, as the object's class answers; a marker when there is none, whatever the class says about it.

    Another marker stands for what takes tensors, or more than a lookup, to answer. That is no read: when the program
    asks for it, the frame of the code that computes it is observed.
    """
    if not may_be_asked(value, name):
        return COMPUTED
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
