"""Keys: hashable values that are equal for equal arguments and calls.

Every cache of results for calls, and every comparison of calls, uses `value_key`; what tells its values apart is the
function that gives the key of a proxy: the name within one trace (`name_key`), or `CanonicalNames` across traces.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, attention_kernels
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import SizeExpr
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.ir.trace import Trace

ProxyKey = Callable[[Any], Hashable]
"""From a proxy, or a trace among the arguments, to a key that equals no pair of a type and something."""


class NoKey(Exception):
    """A call that equals no other: a function of the user's, which a key would keep alive, or unhashable arguments."""


def value_key(value: Any, proxy_key: ProxyKey) -> Hashable:
    """A key that is equal for equal arguments only: nested containers, literals, proxies.

    Types count, and so do the bits of numbers: ``1``, ``1.0`` and ``True`` differ, as do zeros of both signs, and a NaN
    equals itself. The key of an argument that cannot be hashed cannot be hashed either.
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
    """A proxy by its name, a trace by its identity: for calls of one program, while it lives."""
    return (Trace, id(value)) if isinstance(value, Trace) else value.name


class CanonicalNames:
    """Numbers tensors and storages in the order in which they appear, so that names do not count.

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
        """A call with its results.

        Raises:
            NoKey: for a function of the user's.
        """
        return (*self.call(bound), value_key(bound.output, self), bound.context)

    def call(self, bound: BoundSymbol) -> tuple[Hashable, ...]:
        """A call without its results and without its context.

        Raises:
            NoKey: for a function of the user's.
        """
        if Tag.LOCAL in bound.symbol.tags:
            raise NoKey
        return (bound.symbol, value_key(bound.args, self), value_key(bound.kwargs, self) if bound.kwargs else None)


def hashable(key: Callable[[], Hashable]) -> Hashable | None:
    """What ``key()`` returns; None where it raises `NoKey`, or cannot be hashed."""
    try:
        found = key()
        hash(found)
    except (NoKey, TypeError):
        return None
    return found


def call_key(bound: BoundSymbol, context: Context) -> Hashable | None:
    """Everything that a call means under ``context``, but for names; None for a call that equals no other.

    With PyTorch's settings that decide which operators it calls.
    """
    names = CanonicalNames(gradients=True)
    settings = (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), attention_kernels())
    return hashable(lambda: (names.call(bound), context, *settings))


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
