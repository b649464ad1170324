"""The condition for fusing an operation: each of its core-ATen operators has a row that supports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from thunder_core.errors import LoweringError
from thunder_core.executors.disk_tables import lowered_form
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_nvfuser.conditions import unsuitable_op, unsuitable_tensor
from thunder_plugin_nvfuser.inplace import refusal, row_of
from thunder_plugin_nvfuser.options import NvfuserOptions
from thunder_plugin_nvfuser.row import Row
from thunder_plugin_nvfuser.table import TABLE, reason_against

PLAIN: Final = Context(grad_enabled=False, inference=False)
"""The modes under which operations are lowered."""


def can_fuse(bound: BoundSymbol, options: NvfuserOptions, device_type: str) -> bool | str:
    """True, or the reason why the operation cannot be part of a region."""
    reason = unsuitable_op(_proxies(bound), device_type)
    if reason is not None:
        return reason
    if own_row(bound, options) is not None:
        return _refusal(bound, options) or True
    try:
        form = lowered_form(bound, PLAIN)
    except LoweringError as error:
        return f"it has no core-ATen form: {error.problem}"
    reason = next((reason for part in form.symbols if (reason := _refusal(part, options)) is not None), None)
    return reason or refusal(form) or True


def own_row(bound: BoundSymbol, options: NvfuserOptions) -> Row | None:
    """The row of an operation that is not lowered."""
    row = TABLE.get(bound.symbol.target)
    return row if row is not None and _allowed(row, options) else None


def _refusal(bound: BoundSymbol, options: NvfuserOptions) -> str | None:
    operator: Callable[..., Any] = bound.symbol.target
    row = row_of(operator)
    if row is None:
        return reason_against(operator)
    if not _allowed(row, options):
        return f"PyTorch's libraries run {operator} (option {row.option})"
    for proxy in _proxies(bound):
        reason = unsuitable_tensor(proxy)
        if reason is not None:
            return reason
    return None if row.check is None else row.check(*bound.args, **bound.kwargs)


def _allowed(row: Row, options: NvfuserOptions) -> bool:
    return not row.option or bool(getattr(options, row.option))


def _proxies(bound: BoundSymbol) -> Sequence[TensorProxy]:
    return tensors_of(bound)
