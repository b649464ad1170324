"""Functions of PyTorch whose Python code is recorded: those that warn, or call a function that the user has replaced.

A Python function of PyTorch is one op of the trace, which stands for what PyTorch's own code computes. If a variable of
PyTorch's modules that its code reads has another value (``torch.relu = mine`` changes `F.relu`), or the call warns,
which each run of the program has to repeat, the code itself runs instead, and its calls are recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import UnsupportedError
from thunder_core.guards.bytecode import names_of
from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import PACKAGES, CodeKind, is_of_pytorch, kind_of
from thunder_core.guards.conditions import IDENTITY
from thunder_core.guards.source import AttributeSource, ConstantSource
from thunder_core.pytorch_internals import TensorBase, VariableFunctions
from thunder_core.symbols.naming import BUILTINS, evaluate
from thunder_core.tracing.user_frames import user_location

_FUNCTIONS: Final = frozenset({"torch.nn.functional", "torch.functional", torch.Tensor.__module__})
"""Modules whose functions call others that are recorded as ops."""
_PACKAGES: Final = frozenset({"torch", "builtins", *PACKAGES})
_CHECKS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_BODY: Final = "a body that thunder_core.acquire.function_bodies runs"
_NOTES: Final = "guarded replacements of functions of PyTorch"


@dataclass(slots=True)
class _Variable:
    """A variable of a module of PyTorch, or a method of tensors, that the code of a function reads.

    Attributes:
        original: its last value that is PyTorch's own.
    """

    owner: ModuleType | type
    name: str
    original: Any = None

    @property
    def value(self) -> Any:
        return vars(self.owner).get(self.name)

    def is_replaced(self) -> bool:
        value = self.value
        if value is self.original:
            return False
        if is_of_user(self.owner, self.name, value):
            return True
        self.original = value
        return False


def body_of(func: FunctionType) -> Callable[..., Any]:
    """The code of a function of PyTorch without its check for torch-function modes."""
    func = _inside(func)
    namespace = {**func.__globals__, **dict.fromkeys(_CHECKS, _has_none), _BODY: True}
    copy = FunctionType(func.__code__, namespace, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def is_body(frame: FrameType) -> bool:
    """Whether a frame runs the result of `body_of`."""
    return _BODY in frame.f_globals


def has_body(func: Any) -> bool:
    """Whether a function is one of PyTorch that is written in Python."""
    return type(func) is FunctionType and is_of_pytorch(func.__code__)


def _inside(func: Any) -> FunctionType:
    """The function inside of decorators, which have been called already when it checks for modes."""
    while type(getattr(func, "__wrapped__", None)) is FunctionType:
        func = func.__wrapped__
    return func  # type: ignore[no-any-return]


def calls_replaced(recorder: Recorder, func: Any) -> bool:
    """Whether a function of PyTorch reads variables that the user has replaced, which are guarded then."""
    if type(func) is not FunctionType:
        return False
    if kind_of(func.__code__) is CodeKind.USER:
        _check_namespaces(func)
        return False
    replaced = [variable for variable in _variables(_inside(func)) if variable.is_replaced()]
    guarded = recorder.notes.setdefault(_NOTES, set()) if replaced else set()
    for variable in replaced:
        if id(variable) not in guarded:
            guarded.add(id(variable))
            owner = ConstantSource(variable.owner, variable.owner.__name__.replace(".", "_"))
            source = AttributeSource(owner, variable.name)
            recorder.mode.observer.add_guard(Check(source, IDENTITY, variable.value))
            recorder.mode.observer.visit(variable.value, source)
    return bool(replaced)


def _has_none(*args: Any) -> bool:
    return False


def _check_namespaces(func: FunctionType) -> None:
    """Refuse a call of a builtin method, or of a function of a private namespace, that the user has replaced.

    PyTorch looks these up by name to pass them to modes: they get the replacement, and cannot tell a call of the
    original from one of the replacement.
    """
    for namespace in (*map(evaluate, BUILTINS), torch.Tensor):
        names = [name for name, value in vars(namespace).items() if value is func]
        if names and (namespace is not torch.Tensor or hasattr(TensorBase, names[0])):
            place = f"{namespace.__module__}.Tensor" if namespace is torch.Tensor else namespace.__name__
            raise UnsupportedError(
                f"{func.__qualname__} replaces {place}.{names[0]}, and PyTorch does not pass calls of the original to "
                "torch-function modes, which record the program",
                location=user_location(),
                advice=("replace the function that the program calls, of a public module, instead",),
            )


def is_of_user(owner: ModuleType | type, name: str, value: Any) -> bool:
    """Whether the value of a variable of a module of PyTorch is none that PyTorch has assigned."""
    if isinstance(value, FunctionType):
        return kind_of(value.__code__) is CodeKind.USER
    if isinstance(value, BuiltinFunctionType) and owner is torch:
        return getattr(VariableFunctions, name, value) is not value
    package = type(value).__module__.partition(".")[0]
    return callable(value) and not isinstance(value, type) and package not in _PACKAGES


_by_code: dict[CodeType, tuple[_Variable, ...]] = {}


def _variables(func: FunctionType) -> tuple[_Variable, ...]:
    """The variables of PyTorch's modules that a function reads, and the functions that it calls there."""
    code = func.__code__
    known = _by_code.get(code)
    if known is None:
        found: dict[tuple[int, str], _Variable] = {}
        _follow(code, func.__globals__, found, set())
        known = _by_code[code] = tuple(found.values())
    return known


def _follow(
    code: CodeType, namespace: dict[str, Any], found: dict[tuple[int, str], _Variable], visited: set[CodeType]
) -> None:
    visited.add(code)
    for owner, name in _read(code, namespace):
        found.setdefault((id(owner), name), _Variable(owner, name))
        value = vars(owner).get(name)
        if isinstance(value, FunctionType) and value.__module__ in _FUNCTIONS and value.__code__ not in visited:
            _follow(value.__code__, value.__globals__, found, visited)


def _read(code: CodeType, namespace: dict[str, Any]) -> Iterator[tuple[ModuleType | type, str]]:
    """What code reads from modules of PyTorch, as global variables or from these, and the methods of tensors."""
    own, names = sys.modules.get(str(namespace.get("__name__"))), names_of(code)
    for first, *attributes in names.chains:
        module, name, value = own, first, namespace.get(first)
        for attribute in attributes:
            if not isinstance(value, ModuleType):
                break
            module, name, value = value, attribute, vars(value).get(attribute)
        if module is not None and not isinstance(value, ModuleType) and module.__name__.partition(".")[0] == "torch":
            yield module, name
    for name in names.attributes:
        if hasattr(torch.Tensor, name):
            yield torch.Tensor, name
