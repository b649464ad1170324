"""In-place operators among the parts of an operation: decompositions write to intermediate values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_plugin_nvfuser.pytorch_internals import OpOverload, schema_of
from thunder_plugin_nvfuser.row import Row
from thunder_plugin_nvfuser.table import TABLE


@cache
def row_of(operator: Callable[..., Any]) -> Row | None:
    """The row of an operator; for an in-place operator that of its functional variant."""
    schema = _schema(operator)
    if operator in TABLE or schema is None or not schema.name.endswith("_"):
        return TABLE.get(operator)
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::")[:-1], None)
    twin = getattr(packet, schema.overload_name or "default", None)
    return None if twin is None else TABLE.get(twin)


def _schema(function: Callable[..., Any]) -> Any:
    return schema_of(function) if isinstance(function, OpOverload) else None


def written(part: BoundSymbol) -> TensorProxy | None:
    """The value that an in-place operator writes."""
    schema = _schema(part.symbol.target)
    if schema is None or not schema.is_mutable:
        return None
    first = part.args[0]
    return first if isinstance(first, TensorProxy) else None


def refusal(form: Trace) -> str | None:
    """The reason for declining an operation: it writes to an argument, or to a value with other names that are read."""
    parts = form.symbols
    for index, part in enumerate(parts):
        target = written(part)
        if target is None:
            continue
        earlier = _names([proxy for other in parts[:index] for proxy in other.outputs()], target.storage)
        later = _names([proxy for other in parts[index + 1 :] for proxy in other.inputs()], target.storage)
        if _names(form.inputs, target.storage) or earlier & later - {target.name}:
            return f"{part.symbol.target} writes to memory that others read"
    return None


def _names(proxies: Sequence[Any], storage: int) -> set[str]:
    """The names of the proxies in that storage."""
    return {proxy.name for proxy in proxies if isinstance(proxy, TensorProxy) and proxy.storage == storage}
