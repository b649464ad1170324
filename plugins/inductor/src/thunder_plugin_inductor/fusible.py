"""The operations for which Inductor has kernels, by their core-ATen operators."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.executors.artifacts import software, source_hash
from thunder_core.executors.disk_tables import disk_table, lowered_form
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.passes.operations import restride, strided_view, strided_write
from thunder_plugin_inductor.compilers import missing_compiler
from thunder_plugin_inductor.differences import difference
from thunder_plugin_inductor.options import InductorOptions
from thunder_plugin_inductor.settings import settings_text
from thunder_plugin_inductor.templates import parsed_when_used

_PLAIN = Context(grad_enabled=False, inference=False)
BY_STRIDES: Final = "it is a view by strides, and Inductor chooses other strides inside of its regions"
_BY_STRIDES: Final = (torch.as_strided, torch.Tensor.as_strided, strided_view, strided_write)
_reasons: Final[dict[tuple[Any, str], str]] = {}


def can_fuse(bound: BoundSymbol, options: InductorOptions, *, prepares: bool = True) -> bool | str:
    """True, or the reason why the operation cannot be part of a region.

    Args:
        prepares: whether kernels for new operators are compiled in this process, and may be prepared.
    """
    tensors = tensors_of(bound)
    reason = unsuitable(tensors)
    if reason is not None:
        return reason
    if bound.symbol.target in _BY_STRIDES:
        return BY_STRIDES
    if bound.symbol.target is restride:
        return True
    reason = difference(bound)
    if reason is not None:
        return reason
    if Tag.OPAQUE not in bound.symbol.tags and (Tag.ELEMENTWISE in bound.symbol.tags or bound.is_view()):
        return True
    try:
        parts = lowered_form(bound, _PLAIN).symbols
    except LoweringError as error:
        return f"it has no core-ATen form: {error.problem}"
    prepares = prepares and tensors[0].device.type == "cpu"
    for part in parts:
        reason = difference(part) or _unfusible_operator(part.symbol.target, options, prepares)
        if reason is not None:
            return reason
    return True


def unsuitable(tensors: list[TensorProxy]) -> str | None:
    """The reason why operations on these tensors cannot be part of a region; None if there is none."""
    devices = {proxy.device for proxy in tensors}
    if len(devices) != 1:
        return f"it works on {len(devices)} devices" if devices else "it has no tensors"
    for proxy in tensors:
        if proxy.dtype.is_complex:
            return f"Inductor has no kernels for {proxy.dtype}"
        if proxy.layout is not torch.strided:
            return "it has sparse tensors"
    return missing_compiler(next(iter(devices)).type)


def _unfusible_operator(operator: Any, options: InductorOptions, prepares: bool) -> str | None:
    known = _reasons.get((operator, options.matmul))
    if known is None:
        known = _reasons[operator, options.matmul] = _cached_reason(operator, options, prepares)
    return known or None


def _cached_reason(operator: Any, options: InductorOptions, prepares: bool) -> str:
    """The cached reason why Inductor has no kernel for the operator; empty if it has one."""
    table = disk_table(_table_key()) if getattr(operator, "namespace", None) in ("aten", "prims") else None
    name = f"{operator}, matmul {options.matmul}"
    known = None if table is None else table.get(name)
    if known is None:
        if prepares:  # new operators are followed by new kernels
            from thunder_plugin_inductor.preparation import preparation

            preparation(options)
        with parsed_when_used():
            from thunder_plugin_inductor.operators import refusal
        known = (refusal(operator, options.matmul == "inside") or "").encode()
        if table is not None:
            table.put(name, known)
    return known.decode(errors="replace")


@cache
def _table_key() -> str:
    """The key of the table of operators that Inductor can fuse, which is cached because a query imports Inductor."""
    return f"operators of Inductor\n{software()}\n{source_hash('thunder_plugin_inductor')} {settings_text()}"
