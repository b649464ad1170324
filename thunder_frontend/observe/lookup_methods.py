"""Classes that define ``__getattr__`` or ``__getattribute__`` in Python.

A guard on an attribute that such a method computes calls the method in each call of the program. That is correct if the
method has no side effects. Guards do not call other methods (which count, log, cache, or compute with tensors): their
frames are observed like those of other methods, and guards check the objects that they read.

Every read of an attribute calls ``__getattribute__``, also the read of a guard. If this method has side effects, a
program that reads such an object is refused.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.checks.own_lookups import LOOKUPS, has_own_lookup, own_lookups
from thunder_core.checks.plain import ATOM_TYPES
from thunder_core.checks.stored_attributes import MISSING, namespace_of
from thunder_core.checks.stored_content import CHANGING
from thunder_core.tracing.frames import CodeKind, kind_of
from thunder_frontend.observe.abstract_stack import (
    ATTRIBUTE_LOADS,
    FIRST_ASSIGNMENT,
    GLOBAL_LOADS,
    JOIN,
    StackValue,
    instructions,
)

COMPUTED = object()
"""Replaces the value of an attribute that code with side effects or with tensor operations computes."""
_CONTAINERS = frozenset({list, tuple, set, frozenset, dict})
_DEEPEST = 4
_MOST_PARTS = 64
_SPECIAL = frozenset({"__contains__", "__getitem__", "__missing__", "__next__"})  # methods that instructions call
_CACHES = (functools.cached_property, functools._lru_cache_wrapper)
_NO_HOLDERS = (torch.Tensor, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_PURE = frozenset(
    {"BINARY_SLICE", "BINARY_SUBSCR", "BUILD_CONST_KEY_MAP", "BUILD_LIST", "BUILD_MAP", "BUILD_SET"}
    | {"BUILD_SLICE", "BUILD_STRING", "BUILD_TUPLE", "CALL", "CALL_KW", "CHECK_EXC_MATCH", "COMPARE_OP", "CONTAINS_OP"}
    | {"CONVERT_VALUE", "COPY_FREE_VARS", "DELETE_FAST", "END_FOR", "FORMAT_SIMPLE", "FORMAT_VALUE", "FOR_ITER"}
    | {"FORMAT_WITH_SPEC", "GET_ITER", "IS_OP", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD"}
    | {"JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "LOAD_ASSERTION_ERROR", "LOAD_ATTR"}
    | {"LOAD_COMMON_CONSTANT", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_BORROW"}
    | {"LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_METHOD"}
    | {"LOAD_SMALL_INT", "LOAD_SUPER_ATTR", "MAKE_CELL", "NOP", "NOT_TAKEN", "POP_EXCEPT", "POP_ITER"}
    | {"POP_JUMP_BACKWARD_IF_FALSE"}
    | {"POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_TRUE"}
    | {"POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE"}
    | {"POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "POP_JUMP_IF_TRUE"}
    | {"POP_TOP", "PUSH_EXC_INFO", "PUSH_NULL", "RAISE_VARARGS", "RERAISE", "RESUME", "RETURN_CONST", "RETURN_VALUE"}
    | {"STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "TO_BOOL", "UNARY_NOT", JOIN}
)
"""Instructions of CPython 3.11 to 3.14 that assign only local variables and run only the code that they call."""
_FUNCTIONS = frozenset(
    {"bool", "callable", "dict", "float", "frozenset", "getattr", "hasattr", "id", "int", "isinstance", "issubclass"}
    | {"len", "list", "object", "repr", "set", "str", "super", "tuple", "type", "vars"}
) | {name for name, held in vars(builtins).items() if isinstance(held, type) and issubclass(held, Exception)}
"""Builtins without side effects."""
_METHODS = frozenset(
    {"__contains__", "__getattr__", "__getattribute__", "__getitem__", "count", "endswith", "format", "get", "index"}
    | {"items", "join", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rpartition"}
    | {"rsplit", "rstrip", "split", "startswith", "strip", "upper", "values"}
)
"""Methods of objects, strings and dictionaries without side effects."""
_STORES = frozenset(
    {"DELETE_ATTR", "DELETE_DEREF", "DELETE_GLOBAL", "DELETE_SUBSCR", "STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL"}
    | {"STORE_SLICE", "STORE_SUBSCR"}
)
_CHANGING = CHANGING | {"__delattr__", "__setattr__", "delattr", "exec", "print", "setattr", "write"}
"""Functions, and methods of containers, with side effects."""


@functools.lru_cache(maxsize=4096)
def _only_looks_up(code: CodeType) -> bool:
    """Whether code has no side effects: it assigns only local variables and calls only functions without side effects.

    Functions are recognized by name. An instruction, function or method that is not in the tables above counts as a
    side effect, except for functions of PyTorch, which raise an exception during `look_up`.
    """
    for instruction in instructions(code):
        if instruction.operation == "BINARY_OP":
            if instruction.argument >= FIRST_ASSIGNMENT:
                return False
        elif instruction.operation not in _PURE:
            return False
        if instruction.operation in ("CALL", "CALL_KW") and not _has_no_effects_when_called(instruction.callee):
            return False
    return True


def _has_no_effects_when_called(callee: StackValue) -> bool:
    if callee.chain and callee.chain[0] == "torch":
        return True
    if callee.owner is not None:
        return callee.label in _METHODS
    return bool(callee.chain) and callee.label in _FUNCTIONS


def is_pure_lookup(code: CodeType) -> bool:
    """Whether guards may call a lookup method with this code: it has no side effects."""
    return not _changes(code) if code.co_name == "__getattribute__" else _only_looks_up(code)


@functools.lru_cache(maxsize=4096)
def _changes(code: CodeType) -> bool:
    """Whether code assigns anything but local variables, or contains the name of a function with side effects."""
    for instruction in instructions(code):
        if instruction.operation in _STORES or (
            instruction.operation == "BINARY_OP" and instruction.argument >= FIRST_ASSIGNMENT
        ):
            return True
        if instruction.operation in ATTRIBUTE_LOADS | GLOBAL_LOADS and instruction.name in _CHANGING:
            return True
    return False


def replaces_lookup(kind: type) -> bool:
    """Whether a class defines ``__getattribute__`` in Python, so that a read may not return the stored attribute."""
    lookups = own_lookups(kind)
    return lookups is not None and bool(lookups.of_all)


def has_pure_lookup(value: Any, name: str) -> bool:
    """Whether a read of an attribute has no side effects, also in the lookup methods of objects that it reads."""
    if not has_own_lookup(type(value)):
        return True
    return _has_no_effects(value, name, frozenset(), 0)


def _has_no_effects(value: Any, name: str, names: frozenset[str], depth: int) -> bool:
    """`has_pure_lookup` for an object that a lookup method reads by the names in its code."""
    kind = type(value)
    if kind in ATOM_TYPES or isinstance(value, _NO_HOLDERS):
        return True
    if depth > _DEEPEST:
        return False
    if kind in _CONTAINERS:
        parts = tuple(value.values() if kind is dict else value)
        return len(parts) <= _MOST_PARTS and all(_has_no_effects(part, name, names, depth + 1) for part in parts)
    lookups = own_lookups(kind)
    run: tuple[FunctionType, ...] = ()
    if lookups is not None:
        if not all(_is_pure(function, of_all=True) for function in lookups.of_all):
            return False
        if depth == 0 and _holds(value, name):  # no other method runs, and every guard reads through this one
            return True
        run = () if _holds(value, name) else lookups.of_absent
        if not all(map(_is_pure, run)):
            return False
    names |= {part for function in run for part in _names_in(function.__code__)}
    if not all(_is_pure_attribute(kind, part) for part in names | {name} | _SPECIAL):
        return False
    reached = [_held(value, part) for part in names]
    reached += [function.__globals__.get(part, MISSING) for function in run for part in function.__code__.co_names]
    return all(part is MISSING or _has_no_effects(part, name, names, depth + 1) for part in reached)


def _names_in(code: CodeType) -> Iterator[str]:
    """The names in code, of attributes or as keys."""
    yield from code.co_names
    yield from (constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier())


def _on_class(kind: type, name: str) -> Any:
    """The attribute of a class or one of its bases, not bound; MISSING if there is none."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), MISSING)


def _holds(value: Any, name: str) -> bool:
    on_class = _on_class(type(value), name)
    if isinstance(on_class, MemberDescriptorType):
        return _in_slot(on_class, value) is not MISSING
    return on_class is not MISSING or name in (namespace_of(value) or ())


def _held(value: Any, name: str) -> Any:
    """The stored attribute, slot or submodule of an object; MISSING if there is none."""
    own = namespace_of(value) or {}
    if name in own:
        return own[name]
    if isinstance(value, torch.nn.Module) and name in (own.get("_modules") or {}):
        return own["_modules"][name]
    slot = _on_class(type(value), name)
    return _in_slot(slot, value) if isinstance(slot, MemberDescriptorType) else MISSING


def _in_slot(slot: MemberDescriptorType, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:  # it is empty
        return MISSING


def _is_pure(function: FunctionType, *, of_all: bool = False) -> bool:
    code = function.__code__
    return kind_of(code) is CodeKind.IGNORED or (not _changes(code) if of_all else _only_looks_up(code))


def _is_pure_attribute(kind: type, name: str) -> bool:
    """Whether a class attribute, if there is one, has no side effects if a lookup method uses it."""
    attribute = _on_class(kind, name)
    if isinstance(attribute, property):
        attribute = attribute.fget
    if isinstance(attribute, FunctionType):
        return name in LOOKUPS or _is_pure(attribute)
    if name in ("__missing__", "__next__"):  # of a `collections.defaultdict`, of an iterator
        return attribute is MISSING or attribute is None
    return not isinstance(attribute, _CACHES)


def look_up(value: Any, name: str) -> Any:
    """The attribute of an object by the lookup methods of its class.

    Returns MISSING if they raise an exception, and COMPUTED if they have side effects or compute with tensors. When the
    program reads a computed attribute, the frame of the code that computes it is observed.
    """
    if not has_pure_lookup(value, name):
        return COMPUTED
    try:
        with _NoTensors():
            return getattr(value, name)
    except _ComputesTensors:
        return COMPUTED
    except Exception:  # noqa: BLE001  the user's code may raise any exception, and would raise it again in the program
        return MISSING


class _ComputesTensors(BaseException):
    """Not an `Exception`, so that the user's code does not handle it."""


class _NoTensors(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise _ComputesTensors
