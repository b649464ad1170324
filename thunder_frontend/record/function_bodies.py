"""Functions of PyTorch that call a function which the user has replaced: ``torch.relu = mine`` changes `F.relu`.

A call of a Python function of PyTorch, such as `F.relu`, is recorded as one op, on the assumption that the function
calls PyTorch's own functions. If its code reads a variable of PyTorch's modules that the user has replaced, the
function runs instead, and the calls that it makes are recorded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import _lru_cache_wrapper, partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import IDENTITY
from thunder_core.checks.source import AttributeSource, ConstantSource
from thunder_core.errors import UnsupportedError
from thunder_core.ir.import_paths import module_of
from thunder_core.pytorch_internals import TensorBase, VariableFunctions
from thunder_core.symbols.naming import BUILTINS, evaluate
from thunder_core.tracing.frames import PACKAGES, CodeKind, kind_of, user_location
from thunder_frontend.observe.bytecode import names_of
from thunder_frontend.record.recorder import Recorder

_FUNCTIONS: Final = frozenset({"torch.nn.functional", "torch.functional", torch.Tensor.__module__})
"""Modules whose functions call others that are recorded as ops."""
_PACKAGES: Final = frozenset({"torch", "builtins", "typing", "types"})
"""The packages, besides Thunder's, with the classes of callables that PyTorch assigns, such as type annotations."""
_OF_PYTORCH: Final = frozenset({BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType})
_CHECKS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_BODY: Final = "a body that thunder_frontend.record.function_bodies runs"
_NOTES: Final = "guarded replacements of functions of PyTorch"


@dataclass(slots=True)
class _Variable:
    """A variable of a module of PyTorch, or a method of tensors, that the code of a function reads.

    Attributes:
        namespace: the variables of the owner.
        original: its last value that is PyTorch's own.
    """

    owner: ModuleType | type
    name: str
    namespace: Mapping[str, Any]
    original: Any = None

    def is_replaced(self) -> bool:
        """Whether the value, which is not the original, is the user's."""
        value = self.namespace.get(self.name)
        if is_of_user(self.owner, self.name, value):
            return True
        self.original = value
        return False


_known: dict[tuple[int, str], _Variable] = {}
_by_function: dict[FunctionType, tuple[_Variable, ...]] = {}
"""The variables that functions read. One that calls a replaced function is absent: its reads are unknown."""


def calling_replaced(recorder: Recorder, func: Any) -> Callable[..., Any] | None:
    """The code of a function of PyTorch without its check for torch-function modes, if it reads replaced variables.

    These are guarded. None for other functions, and for those that are not written in Python.
    """
    if type(func) is not FunctionType:
        if type(func) not in _OF_PYTORCH and is_of_user(torch.Tensor, "", func):
            _check_namespaces(func)
        return None
    variables = _by_function.get(func)
    if variables is None:
        if kind_of(func.__code__) is CodeKind.USER:
            _check_namespaces(func)
            return None
        variables = _find_variables(func)
    replaced = [
        variable
        for variable in variables
        if variable.namespace.get(variable.name) is not variable.original and variable.is_replaced()
    ]
    if not replaced:
        return None
    guarded = recorder.notes.setdefault(_NOTES, set())
    for variable in replaced:
        if id(variable) not in guarded:
            guarded.add(id(variable))
            owner = ConstantSource(variable.owner, variable.owner.__name__.replace(".", "_"))
            source, value = AttributeSource(owner, variable.name), variable.namespace[variable.name]
            recorder.mode.observer.add_guard(Check(source, IDENTITY, value))
            recorder.mode.observer.visit(value, source)
    return _body(_inside(func))


def _inside(func: Any) -> FunctionType:
    """The function inside of decorators, which have been called already when it checks for modes."""
    while type(getattr(func, "__wrapped__", None)) is FunctionType:
        func = func.__wrapped__
    return func  # type: ignore[no-any-return]


def _body(func: FunctionType) -> Callable[..., Any]:
    namespace = {**func.__globals__, **dict.fromkeys(_CHECKS, _has_none), _BODY: True}
    copy = FunctionType(func.__code__, namespace, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def is_body(frame: FrameType) -> bool:
    """Whether a frame runs the result of `calling_replaced`."""
    return _BODY in frame.f_globals


def _has_none(*args: Any) -> bool:
    return False


def _check_namespaces(func: Any) -> None:
    """Refuse a call of a builtin method, or of a function of a private namespace, that the user has replaced.

    PyTorch looks these up by name to pass them to modes: they get the replacement, and cannot tell a call of the
    original from one of the replacement.
    """
    for namespace in (*map(evaluate, BUILTINS), torch.Tensor):
        names = [name for name, value in vars(namespace).items() if value is func]
        if names and (namespace is not torch.Tensor or hasattr(TensorBase, names[0])):
            place = f"{namespace.__module__}.Tensor" if namespace is torch.Tensor else namespace.__name__
            replacement = getattr(func, "__qualname__", type(func).__qualname__)
            raise UnsupportedError(
                f"{replacement} replaces {place}.{names[0]}, and PyTorch does not pass calls of the original to "
                "torch-function modes, which record the program",
                location=user_location(),
                advice=("replace the function that the program calls, of a public module, instead",),
            )


def is_of_user(owner: ModuleType | type, name: str, value: Any) -> bool:
    """Whether the value of a variable of a module of PyTorch is a callable of the user's.

    Functions of installed libraries other than PyTorch count as PyTorch's.
    """
    if isinstance(value, partial):
        return is_of_user(owner, name, value.func)
    if isinstance(value, MethodType | _lru_cache_wrapper):
        value = inspect.unwrap(getattr(value, "__func__", value))
    if isinstance(value, FunctionType):
        return kind_of(value.__code__) is CodeKind.USER
    if isinstance(value, BuiltinFunctionType) and owner is torch:
        return getattr(VariableFunctions, name, value) is not value
    package = module_of(type(value)).partition(".")[0]
    return callable(value) and not isinstance(value, type) and package not in _PACKAGES | PACKAGES


def _find_variables(func: FunctionType) -> tuple[_Variable, ...]:
    """The variables of PyTorch's modules that a function reads, and the functions that it calls there."""
    found: dict[tuple[int, str], _Variable] = {}
    _follow(_inside(func), found, set())
    variables = tuple(found.values())
    if not any(variable.is_replaced() for variable in variables):
        _by_function[func] = variables
    return variables


def _follow(func: FunctionType, found: dict[tuple[int, str], _Variable], visited: set[CodeType]) -> None:
    visited.add(func.__code__)
    for owner, name in _read(func.__code__, func.__globals__):
        key = id(owner), name
        found[key] = _known.setdefault(key, _Variable(owner, name, vars(owner)))
        value = vars(owner).get(name)
        if isinstance(value, FunctionType) and value.__module__ in _FUNCTIONS and value.__code__ not in visited:
            _follow(value, found, visited)


def _read(code: CodeType, namespace: dict[str, Any]) -> Iterator[tuple[ModuleType | type, str]]:
    """What code reads from modules of PyTorch, as global variables or from these, and the methods of tensors."""
    own, names = sys.modules.get(str(namespace.get("__name__"))), names_of(code)
    for module, name, value in names.variables(namespace):
        owner = own if module is None else module
        if owner is not None and not isinstance(value, ModuleType) and owner.__name__.partition(".")[0] == "torch":
            yield owner, name
    for name in names.attributes:
        if hasattr(torch.Tensor, name):
            yield torch.Tensor, name
