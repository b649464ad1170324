"""Formulas of gradients that are functions of the program: `torch.library.register_autograd`.

A formula that is traced runs once. That is right if all that it reads is in its arguments.
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch

from thunder_core.checks.stored_attributes import content_of
from thunder_core.pytorch_internals import CustomOpDef, OpOverload, OpOverloadPacket
from thunder_core.tracing.frames import CodeKind, is_in_installed, kind_of, kind_of_class

_CONSTANT: Final = (BuiltinFunctionType, CustomOpDef, OpOverload, OpOverloadPacket, torch.dtype, torch.device)


def reads_objects(function: Any) -> bool:
    """Whether a function may read variables of the program other than functions: their values may change."""
    pending, seen = [function], set[int]()
    while pending:
        value = pending.pop()
        if type(value) is not FunctionType:
            if not _is_constant(value):
                return True
        elif id(value) not in seen:
            seen.add(id(value))
            pending += map(content_of, value.__closure__ or ())
            if kind_of(value.__code__) is CodeKind.USER:
                held = value.__globals__
                pending += [held[name] for name in _names_in(value.__code__) if name in held]
    return False


def _names_in(code: CodeType) -> set[str]:
    """The names in code, including those of attributes, and in the code that it contains."""
    inner = [_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)


def _is_constant(value: Any) -> bool:
    if isinstance(value, ModuleType):
        name = value.__name__
        return name.partition(".")[0] in sys.stdlib_module_names | {"torch"} or is_in_installed(name)
    return isinstance(value, _CONSTANT) or (isinstance(value, type) and kind_of_class(value) is not CodeKind.USER)
