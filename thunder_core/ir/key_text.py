"""Keys of regions and of lines as text that is the same in every process."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import torch

from thunder_core.ir.context import Context
from thunder_core.ir.symbol import CallStyle, Symbol

_PLAIN: Final = (bool, int, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
_OPERATORS: Final = ("torch.ops.aten.", "torch.ops.prims.")


def key_text(key: Hashable) -> str | None:
    """A key of nested tuples as text; None where something in it means something in this process only.

    Only functions of PyTorch are identified by their names: their code is that of PyTorch's version. A function of
    anybody else may change under its name.
    """
    parts: list[str] = []
    return " ".join(parts) if _write(key, parts) else None


def _write(value: Any, parts: list[str]) -> bool:
    if type(value) in _PLAIN:
        parts.append(f"{type(value).__name__}:{value!r}")
        return True
    if type(value) is tuple:
        parts.append("(")
        complete = all(_write(item, parts) for item in value)
        parts.append(")")
        return complete
    if isinstance(value, type):
        parts.append(f"{value.__module__}.{value.__qualname__}")
        return value.__module__ == "builtins" or value.__module__.split(".")[0] in ("torch", "thunder_core")
    if isinstance(value, Symbol):
        name = _symbol(value)
        parts.append(str(name))
        return name is not None
    if type(value) is Context:
        parts.append(f"{value!r}")
        return True
    return False


def _symbol(symbol: Symbol) -> str | None:
    """How the call is printed, and what the function behind it is called: spellings of one name can differ there."""
    name = symbol.name if symbol.style is CallStyle.FUNCTION else f"torch.Tensor.{symbol.name}"
    if symbol.executor is not None or not name.startswith("torch."):
        return None
    if name.startswith("torch.ops.") and not name.startswith(_OPERATORS):
        return None
    target: Any = symbol.target
    own = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__qualname__
    return f"{symbol.style.name} {name} {getattr(target, '__module__', None)}.{own}"
