"""Formulas of gradients that are functions of the program: `torch.library.register_autograd`.

A formula that is traced runs once. That is right if all that it reads is in its arguments.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch

from thunder_core.checks.stored_attributes import content_of
from thunder_core.ir.import_paths import module_of
from thunder_core.pytorch_internals import CustomOpDef, OpOverload, OpOverloadPacket
from thunder_core.tracing.frames import CodeKind, kind_of, kind_of_class

_OPERATORS: Final = (CustomOpDef, OpOverload, OpOverloadPacket)
_IMMUTABLE: Final = frozenset({type(None), bool, int, float, complex, str, torch.dtype, torch.device})
_PURE: Final = frozenset({"torch", "builtins", "cmath", "functools", "itertools", "math", "operator", "typing"})
"""Packages whose functions compute from their arguments alone, or by operations that are traced."""
_READ_OBJECTS: Final = frozenset({"__import__", "eval", "exec", "globals", "input", "open"})


def reads_objects(function: Any) -> bool:
    """Whether a function may use variables of the program, whose values may change.

    Such are the global variables that hold functions of the program: they may get others. Variables of closures that
    hold functions, as those of decorators do, are taken to keep them.
    """
    pending, seen = [function], set[int]()
    while pending:
        value = pending.pop()
        if type(value) is not FunctionType:
            if not _is_constant(value):
                return True
        elif id(value) not in seen:
            seen.add(id(value))
            pending += map(content_of, value.__closure__ or ())
            defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            pending += [default for default in defaults if type(default) not in _IMMUTABLE]
            if kind_of(value.__code__) is CodeKind.USER and _uses_variables(value):
                return True
    return False


def _uses_variables(function: FunctionType) -> bool:
    """Whether code uses global variables other than those of PyTorch's functions and the like, or other modules."""
    held = function.__globals__
    for instruction in _instructions(function.__code__):
        name = instruction.argval
        if instruction.opname == "IMPORT_NAME" and not _is_pure(name):
            return True
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and (
            not _is_constant(held[name]) if name in held else name in _READ_OBJECTS
        ):
            return True
    return False


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of code, and of the code that it contains."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)


def _is_pure(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _PURE


def _is_constant(value: Any) -> bool:
    kind = type(value)  # reading `__class__` may run code of the program
    if issubclass(kind, ModuleType):
        return _is_pure(value.__name__)
    if kind is FunctionType:
        return _is_pure(value.__globals__.get("__name__"))
    if issubclass(kind, type):
        return kind_of_class(value) is not CodeKind.USER and _is_pure(module_of(value))
    return _is_pure(value.__module__) if kind is BuiltinFunctionType else issubclass(kind, _OPERATORS)
