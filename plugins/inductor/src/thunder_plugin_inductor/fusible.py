"""Which lines Inductor makes kernels of: that is asked of their core-ATen operators."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.executors.artifacts import software, source_hash
from thunder_core.executors.disk_tables import disk_table, lowered_form
from thunder_core.ir.bound_symbol import BoundSymbol
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
BY_STRIDES: Final = "it goes to memory by strides, and Inductor chooses other ones for values inside of its regions"
_BY_STRIDES: Final = (torch.as_strided, torch.Tensor.as_strided, strided_view, strided_write)
_answers: Final[dict[tuple[Any, str], str]] = {}


def can_fuse(bound: BoundSymbol, options: InductorOptions) -> bool | str:
    """True, or why the line cannot be in a region."""
    tensors = [proxy for proxy in (*bound.inputs(), *bound.outputs()) if isinstance(proxy, TensorProxy)]
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
    for part in parts:
        reason = difference(part) or _unfusible_operator(part.symbol.target, options, tensors[0].device.type)
        if reason is not None:
            return reason
    return True


def unsuitable(tensors: list[TensorProxy]) -> str | None:
    """Why no line that works on these tensors can be in a region; None if there is no reason."""
    devices = {proxy.device for proxy in tensors}
    if len(devices) != 1:
        return f"it works on {len(devices)} devices" if devices else "it works on no tensors"
    for proxy in tensors:
        if proxy.dtype.is_complex:
            return f"Inductor makes no kernels for {proxy.dtype}"
        if proxy.layout is not torch.strided:
            return "it works on sparse tensors"
    return missing_compiler(next(iter(devices)).type)


def _unfusible_operator(operator: Any, options: InductorOptions, device: str) -> str | None:
    known = _answers.get((operator, options.matmul))
    if known is None:
        known = _answers[operator, options.matmul] = _kept_answer(operator, options, device)
    return known or None


def _kept_answer(operator: Any, options: InductorOptions, device: str) -> str:
    """Why Inductor makes no kernel of the operator; empty if it does."""
    table = disk_table(_table_key()) if getattr(operator, "namespace", None) in ("aten", "prims") else None
    question = f"{operator}, matmul {options.matmul}"
    known = None if table is None else table.get(question)
    if known is None:
        if device == "cpu":  # where operators are new, kernels will be
            from thunder_plugin_inductor.preparation import preparation

            preparation(options)
        with parsed_when_used():
            from thunder_plugin_inductor.operators import refusal
        known = (refusal(operator, options.matmul == "inside") or "").encode()
        if table is not None:
            table.put(question, known)
    return known.decode()


@cache
def _table_key() -> str:
    """Of what Inductor says about operators: to ask it, all of it has to be imported."""
    return f"operators of Inductor\n{software()}\n{source_hash('thunder_plugin_inductor')} {settings_text()}"
