"""Keys: hashable values that are equal for equal arguments and calls.

Every cache of results for calls, and every comparison of calls, uses `value_key`. Its users differ in the key of a
proxy: the name within one trace (`name_key`), or `CanonicalNames` across traces.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, attention_kernels
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import SizeExpr
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket

ProxyKey = Callable[[Any], Hashable]
"""Maps a proxy, or a trace among the arguments, to a key that differs from all ``(type, value)`` pairs."""


class NoKey(Exception):
    """Raised for a call without a key: its target is a user function, which a key would keep alive."""


def value_key(value: Any, proxy_key: ProxyKey) -> Hashable:
    """A key of nested containers, literals and proxies. Equal arguments, and no others, have equal keys.

    Numbers compare by type and bits: ``1``, ``1.0`` and ``True`` differ, as do ``0.0`` and ``-0.0``; a NaN equals
    itself. The key of an unhashable argument is unhashable.
    """
    kind = type(value)
    if kind is TensorProxy:
        return proxy_key(value)
    if kind is int or kind is bool or value is None or kind is SizeExpr:
        return (kind, value)
    if isinstance(value, tuple | list):
        return (kind, *[value_key(item, proxy_key) for item in value])
    if isinstance(value, float | complex):
        return (kind, repr(value))
    if kind is dict:
        return (kind, *[(name, value_key(item, proxy_key)) for name, item in value.items()])
    if kind is slice:
        return (kind, *[value_key(item, proxy_key) for item in (value.start, value.stop, value.step)])
    if kind is NumberProxy or kind is OpaqueProxy or kind is Trace:
        return proxy_key(value)
    return (kind, value)


def name_key(value: Proxy | Trace) -> Hashable:
    """The key of a proxy is its name, that of a trace its ``id``. Valid within one program, while it lives."""
    return (Trace, id(value)) if isinstance(value, Trace) else value.name


class CanonicalNames:
    """Numbers tensors and storages in order of appearance, so that keys do not depend on names.

    Args:
        gradients: whether tensors that require grad differ from others.
    """

    def __init__(self, *, gradients: bool = False) -> None:
        self._gradients = gradients
        self._values: dict[str, int] = {}
        self._storages: dict[int, int] = {}

    def __call__(self, value: Proxy | Trace) -> Hashable:
        """The number of a tensor that appeared before, the metadata of a new one.

        Raises:
            NoKey: for a trace.
        """
        if isinstance(value, Trace):
            raise NoKey
        if not isinstance(value, TensorProxy):
            return (type(value), value)
        known = self._values.get(value.name)
        if known is not None:
            return known
        self._values[value.name] = len(self._values)
        storage = self._storages.setdefault(value.storage, len(self._storages))
        requires_grad = self._gradients and value.requires_grad
        return (value.geometry, value.dtype, value.device, value.layout, requires_grad, storage)

    def op(self, bound: BoundSymbol) -> Hashable:
        """The key of a call and its outputs.

        Raises:
            NoKey: for a user function.
        """
        return (*self.call(bound), value_key(bound.output, self), bound.context)

    def call(self, bound: BoundSymbol) -> tuple[Hashable, ...]:
        """The key of a call without its outputs and its context.

        Raises:
            NoKey: for a user function.
        """
        if Tag.LOCAL in bound.symbol.tags:
            raise NoKey
        return (bound.symbol, value_key(bound.args, self), value_key(bound.kwargs, self) if bound.kwargs else None)


def hashable(key: Callable[[], Hashable]) -> Hashable | None:
    """The result of ``key()``; None if it raises `NoKey` or the result is unhashable."""
    try:
        result = key()
        hash(result)
    except (NoKey, TypeError):
        return None
    return result


def call_key(bound: BoundSymbol, context: Context) -> Hashable | None:
    """The key of a call under ``context``, independent of names; None for a call without a key (see `NoKey`).

    It includes the PyTorch settings that decide which operators the call dispatches to.
    """
    names = CanonicalNames(gradients=True)
    settings = (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), attention_kernels())
    return hashable(lambda: (names.call(bound), context, *settings))


_PLAIN: Final = (bool, int, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
_OPERATORS: Final = ("torch.ops.aten.", "torch.ops.prims.")


def key_text(key: Hashable) -> str | None:
    """A key of nested tuples as text, valid across processes; None if an item is meaningful in this process only.

    Only functions of PyTorch and of the core are identified by name: the version of the one and a hash of the other are
    part of what such keys are stored under. The code of any other function may change under the same name.
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
        return value.__module__ == "builtins" or _is_fixed(value.__module__)
    if isinstance(value, Symbol):
        name = _symbol(value)
        parts.append(str(name))
        return name is not None
    if type(value) is Context:
        parts.append(f"{value!r}")
        return True
    name = _function(value)  # an argument of a call
    parts.append(f"function:{name}")
    return name is not None


def _symbol(symbol: Symbol) -> str | None:
    """The printed name with the qualified name of the target: symbols with one printed name can have two targets."""
    name = symbol.name if symbol.style is CallStyle.FUNCTION else f"torch.Tensor.{symbol.name}"
    if symbol.executor is not None or "." not in name or not _is_fixed(name) or _is_of_package(name):
        return None
    target: Any = symbol.target
    qualified = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__qualname__
    return f"{symbol.style.name} {name} {getattr(target, '__module__', None)}.{qualified}"


def _function(value: Any) -> str | None:
    """The import path of a function of PyTorch or of the core; None for one that only took the place of such a one."""
    if not isinstance(value, FunctionType | BuiltinFunctionType | OpOverload | OpOverloadPacket):
        return None
    path = import_path(value)
    home = value.__globals__.get("__name__", "") if isinstance(value, FunctionType) else "torch"
    if path is None or not _is_fixed(path[0]) or not _is_fixed(home) or _is_of_package(".".join(path)):
        return None
    return ".".join(path)


def _is_fixed(path: str) -> bool:
    """Whether the name of a module, or in it, is one of PyTorch or of the core."""
    return path.partition(".")[0] in ("torch", "thunder_core")


def _is_of_package(name: str) -> bool:
    """Whether this is an operator that another package registered."""
    return name.startswith("torch.ops.") and not name.startswith(_OPERATORS)
