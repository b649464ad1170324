"""Joint traces, built by hand: each line is run on tensors without data, which give its results' metadata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.autodiff.joint import Joint
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols.registry import registry
from thunder_testing.hand_built import GRAD


def operator(overload: Any) -> Symbol:
    return registry.resolve(overload, (), {})[0]


def function(name: str) -> Symbol:
    return registry.symbol_named(name)


def method(name: str) -> Symbol:
    return registry.symbol_named(name, CallStyle.METHOD)


@dataclass
class JointBuilder:
    """Add inputs, then lines; `start_backward` where the program's own lines end; `joint` ends it."""

    primals: list[Proxy] = field(default_factory=list)
    cotangents: list[TensorProxy] = field(default_factory=list)
    lines: list[BoundSymbol] = field(default_factory=list)
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    forward_lines: int | None = None

    def primal(self, name: str, *shape: int, dtype: torch.dtype = torch.float32, like: Any = None) -> TensorProxy:
        value = torch.empty(shape, dtype=dtype, device="meta") if like is None else like
        proxy = self._proxy(name, value)
        self.primals.append(proxy)
        return proxy

    def opaque(self, name: str) -> OpaqueProxy:
        self.primals.append(OpaqueProxy(name, "object"))
        return self.primals[-1]

    def cotangent(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> TensorProxy:
        self.cotangents.append(self._proxy(name, torch.empty(shape, dtype=dtype, device="meta")))
        return self.cotangents[-1]

    def call(
        self, name: str, symbol: Symbol, *args: Any, effects: Effects = PURE, output: Any = None, **kwargs: Any
    ) -> Any:
        """Add a line; its results are called ``name``, or ``name0``, ``name1``, ... if they are many."""
        if output is None:
            given = [map_leaves(lambda leaf: self.values.get(getattr(leaf, "name", None), leaf), part) for part in args]
            result = symbol.target(*given, **kwargs)
            tensors = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
            names = iter([name] if len(tensors) == 1 else [f"{name}{place}" for place in range(len(tensors))])
            output = map_leaves(lambda leaf: self._proxy(next(names), leaf), result)
        location = SourceLocation(__file__, len(self.lines) + 1, "forward")
        self.lines.append(BoundSymbol(symbol, args, kwargs, output, effects, location=location))
        return output

    def start_backward(self) -> None:
        self.forward_lines = len(self.lines)

    def joint(self, outputs: Iterable[Any], gradients: Iterable[Any], **fields: Any) -> Joint:
        inputs = (*self.primals, *self.cotangents)
        output = (tuple(outputs), tuple(gradients))
        trace = Trace("joint", inputs, tuple(self.lines), output, Stage.FUNCTIONAL, "a test", GRAD)
        lines = len(self.lines) if self.forward_lines is None else self.forward_lines
        fields = {name: frozenset(value) for name, value in fields.items()}
        return Joint(trace, lines, tuple(self.cotangents), (0,) * len(self.cotangents), (), **fields)

    def _proxy(self, name: str, value: torch.Tensor) -> TensorProxy:
        self.values[name] = value
        key = value.untyped_storage()._cdata
        storage = self.storages.setdefault(key, len(self.storages))
        cpu = torch.device("cpu")
        return TensorProxy(
            name, tuple(value.shape), value.stride(), value.dtype, cpu, False, storage, value.storage_offset()
        )
