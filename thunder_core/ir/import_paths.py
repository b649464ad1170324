"""Where objects are imported from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import torch

# Modules whose attributes are there after ``import torch``, so that printed modules need no further import.
TORCH_MODULES = frozenset({"torch", "torch.nn", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"})


def import_path(value: Any) -> tuple[str, str] | None:
    """Module and qualified name that give back ``value`` itself; None when there are none."""
    for module, name in _candidate_paths(value):
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        # bound methods (``Function.apply``) and members of C++ enums are made anew by each access: equal, not identical
        if found is value or (found is not None and type(found) is type(value) and found == value):
            return module, name
    return None


def _candidate_paths(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, torch._ops.OpOverload):
        return [("torch", f"ops.{value._schema.name.replace('::', '.')}.{value._overloadname}")]
    if isinstance(value, torch._ops.OpOverloadPacket):
        return [("torch", f"ops.{value._qualified_op_name.replace('::', '.')}")]
    kind = type(value)
    if isinstance(getattr(kind, "__members__", None), Mapping):  # a Python or C++ enum
        return [(module, f"{kind.__qualname__}.{value.name}") for module in (kind.__module__, "torch._C")]
    if not callable(value):
        return []
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(name, str):
        return []
    if "<" in name:  # PyTorch makes some of its functions inside others (``boolean_dispatch``)
        plain = getattr(value, "__name__", "<")
        return [] if "<" in plain else [("torch", plain), ("torch.nn.functional", plain)]
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type):  # a class method, such as ``apply`` of an autograd.Function
        return [(owner.__module__, f"{owner.__qualname__}.{value.__name__}")]
    module = getattr(value, "__module__", None)
    plain = name.rpartition(".")[2]
    paths = [(module, name)] if isinstance(module, str) else []
    public = [("torch", plain), ("torch", f"Tensor.{plain}"), ("torch.nn.functional", plain)]
    return [*public, *paths] if isinstance(module, str) and module.startswith("torch.") else [*paths, *public]


@cache
def module_of_name(name: str) -> str:
    """The module to import so that the dotted ``name`` can be evaluated: its longest prefix that is a module."""
    if name.startswith("torch.ops."):
        return "torch"
    prefix = name.rpartition(".")[0]
    while prefix and prefix not in TORCH_MODULES:
        if prefix in sys.modules or _importable(prefix):
            return prefix
        prefix = prefix.rpartition(".")[0]
    return "torch" if prefix else ""


def _importable(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
