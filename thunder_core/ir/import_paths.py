"""Import paths of Python objects."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import BuiltinMethodType, MethodType
from typing import Any, Final

from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket, overload_name, qualified_op_name, schema_of

# Modules that ``import torch`` imports, so that printed modules need no further import for them.
TORCH_MODULES = frozenset({"torch", "torch.nn", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"})


_MODULE_OF_CLASS: Final[Any] = vars(type)["__module__"]


def module_of(kind: Any) -> str:
    """The name of the Python module of a class; empty if the class defines ``__module__`` as something else.

    Its metaclass may define it, too.
    """
    try:
        name = _MODULE_OF_CLASS.__get__(kind)
    except AttributeError:  # it was deleted
        return ""
    return name if isinstance(name, str) else ""


def import_path(value: Any) -> tuple[str, str] | None:
    """``(module, qualified name)`` under which importing code gets ``value`` itself; None if there is no such path."""
    for module, name in _candidate_paths(value):
        if evaluates_to(f"{module}.{name}", value):
            return module, name
    return None


def evaluates_to(path: str, value: Any) -> bool:
    """Whether the dotted ``path`` evaluates to ``value`` itself in code that imports `module_of_name` of it.

    A function or class with the name of a subpackage hides it: ``package.part.function`` cannot be evaluated if
    ``package`` has a function ``part``, even though the module ``package.part`` can be imported.
    """
    root, *parts = path.split(".")
    result: Any = sys.modules.get(root)
    for part in parts:
        result = getattr(result, part, None)
    return result is value or (_is_new_per_access(value) and type(result) is type(value) and bool(result == value))


def _is_new_per_access(value: Any) -> bool:
    """Whether each attribute access returns a new object: bound methods (``Function.apply``), C++ enum members."""
    return isinstance(value, MethodType | BuiltinMethodType) or _is_enum(type(value))


def _is_enum(kind: type) -> bool:
    """Whether the class is a Python enum or a C++ enum."""
    return isinstance(getattr(kind, "__members__", None), Mapping)


def _candidate_paths(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, OpOverload):
        return [("torch", f"ops.{schema_of(value).name.replace('::', '.')}.{overload_name(value)}")]
    if isinstance(value, OpOverloadPacket):
        return [("torch", f"ops.{qualified_op_name(value).replace('::', '.')}")]
    kind = type(value)
    if _is_enum(kind):
        return [(module, f"{kind.__qualname__}.{value.name}") for module in (kind.__module__, "torch._C")]
    if not callable(value):
        return []
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(name, str):
        return []
    if "<" in name:  # PyTorch defines some functions inside others (``boolean_dispatch``)
        plain = getattr(value, "__name__", "<")
        return [] if "<" in plain else [("torch", plain), ("torch.nn.functional", plain)]
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type):  # a class method, such as ``apply`` of an autograd.Function
        return [(owner.__module__, f"{owner.__qualname__}.{value.__name__}")]
    module = getattr(value, "__module__", None)
    if isinstance(module, str) and module.startswith("torch.ops."):  # no module: an attribute of `torch.ops`
        return [("torch", f"{module.removeprefix('torch.')}.{name}")]
    plain = name.rpartition(".")[2]
    paths = [(module, name)] if isinstance(module, str) else []
    public = [("torch", plain), ("torch", f"Tensor.{plain}"), ("torch.nn.functional", plain)]
    return [*public, *paths] if isinstance(module, str) and module.startswith("torch.") else [*paths, *public]


@cache
def module_of_name(name: str) -> str:
    """The longest prefix of the dotted ``name`` that is a module; importing it makes ``name`` evaluable."""
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
