"""Small traces for tests of code that reads and prints traces."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.ir.annotation import contiguous_stride
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.effects import Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.symbols.registry import registry

GRAD = Context(True, False)
LINEAR = registry.symbol_named("torch.nn.functional.linear")
RELU = registry.symbol_named("torch.relu")
MAX = registry.symbol_named("torch.max")
VIEW = registry.symbol_named("view", CallStyle.METHOD)
ADD_ = registry.symbol_named("add_", CallStyle.METHOD)
TRANSPOSED = registry.symbol_named("T", CallStyle.ATTRIBUTE)
GETITEM = registry.symbol_named("getitem", CallStyle.GETITEM)


def tensor(name: str, shape: tuple[int, ...], storage: int, **metadata: Any) -> TensorProxy:
    """A contiguous float32 tensor proxy on the CPU, unless ``metadata`` overrides that."""
    fields: dict[str, Any] = {
        "stride": contiguous_stride(shape),
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "requires_grad": False,
        **metadata,
    }
    return TensorProxy(name, shape, storage=storage, **fields)


def trace(inputs: tuple[Any, ...], symbols: list[BoundSymbol], output: Any, **fields: Any) -> Trace:
    """A trace in the context of training without autocast."""
    fields = {"stage": Stage.ACQUIRED, "provenance": "a test", "context": GRAD, **fields}
    return Trace("computation", inputs, tuple(symbols), output, **fields)


def bound(symbol: Symbol, args: tuple[Any, ...], output: Any, *, kwargs: Any = None, **fields: Any) -> BoundSymbol:
    """A bound symbol."""
    return BoundSymbol(symbol, args, kwargs or {}, output, **fields)


def substitute_parts(lowered: Trace) -> Trace:
    """The trace with each operation replaced by its parts."""
    ops = [part for op in lowered.symbols for part in (op.parts or (op,))]
    return lowered.with_symbols(ops, "lowering")


HERE = SourceLocation(__file__, 1, "forward")


def sample() -> Trace:
    """A trace with every style of call, a mutation, contexts, two outputs, and a deletion."""
    x, weight = tensor("x", (2, 4), 0), tensor("weight", (3, 4), 1, requires_grad=True)
    a = tensor("a", (2, 3), 2, requires_grad=True)
    b = tensor("b", (2, 3), 3)
    c = tensor("c", (2, 3), 3)
    d = tensor("d", (6,), 3)
    e = tensor("e", (1, 3), 3, stride=(6, 2))
    values, indices = tensor("values", (2,), 4), tensor("indices", (2,), 5, dtype=torch.int64)
    f = tensor("f", (3, 2), 3, stride=(1, 3))
    no_grad = Context(False, False)
    largest: Any = (values, indices)
    ops = [
        bound(LINEAR, (x, weight), a, location=HERE),
        bound(RELU, (a,), b, location=HERE, context=no_grad),
        bound(ADD_, (b, 1.5), c, context=no_grad, effects=Effects(mutates=("b",))),
        bound(VIEW, (c, -1), d),
        bound(GETITEM, (d, (None, slice(0, None, 2))), e),
        bound(MAX, (c,), torch.return_types.max(largest), kwargs={"dim": 1}),
        bound(TRANSPOSED, (c,), f),
    ]
    output = (a, [e, values], {"indices": indices, "scale": float("-inf")}, f)
    return trace((x, weight), ops, output, deletions={2: ("b",), 3: ("x",)})
