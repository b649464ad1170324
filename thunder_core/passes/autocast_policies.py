"""How autocast's effect on a call can be written as conversions of its arguments, or as an option of the call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Autocast, CallStyle
from thunder_core.ir.tensors import tensor_inputs_of
from thunder_core.ir.tree import iterate_leaves
from thunder_core.symbols.autocast import has_result_dtype
from thunder_core.symbols.registry import registry


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A line without autocast that does what the line does under autocast.

    Attributes:
        device_type: of the arguments that are converted.
        argument_dtype: the arguments that autocast looks at are converted to it; None leaves them.
        result_dtype: the value of the call's option ``dtype``; None leaves it.
        cached: False where autocast converts views of the arguments: PyTorch keeps no conversions of views.
    """

    device_type: str = ""
    argument_dtype: torch.dtype | None = None
    result_dtype: torch.dtype | None = None
    cached: bool = True

    def conversion(self, leaf: Any) -> torch.dtype | None:
        """What an argument is converted to; None when it stays."""
        if self.argument_dtype is None or not is_eligible(leaf, self.device_type):
            return None
        return None if leaf.dtype is self.argument_dtype else self.argument_dtype

    def with_result_dtype(self, bound: BoundSymbol) -> BoundSymbol:
        """The line with its option. Raises LoweringError for a call that has no place for it."""
        if self.result_dtype is None:
            return bound
        kwargs = {**bound.kwargs, "dtype": self.result_dtype}
        symbol, args, kwargs = registry.resolve(bound.symbol.target, bound.args, kwargs)
        if symbol is not bound.symbol:
            raise LoweringError(f"{bound.symbol.name} takes no dtype")
        return replace(bound, args=args, kwargs=kwargs)


UNCHANGED = Rewrite()

CAST: Final = registry.symbol_named("to", CallStyle.METHOD)


def is_eligible(leaf: Any, device_type: str) -> bool:
    """Whether autocast for ``device_type`` converts a value at all."""
    return (
        isinstance(leaf, TensorProxy)
        and leaf.device.type == device_type
        and leaf.dtype.is_floating_point
        and leaf.dtype is not torch.float64
    )


def rewrite_by_class(bound: BoundSymbol, context: Context) -> Rewrite | None:
    """What the autocast class of a symbol says; None without a class, or for calls that autocast refuses."""
    found = _device(bound, context)
    if found is None:
        return None
    device_type, dtype = found
    match bound.symbol.autocast.get(device_type):
        case Autocast.LOWER_PRECISION:
            return _simplified(bound, Rewrite(device_type, dtype))
        case Autocast.FLOAT32 if has_result_dtype(bound.symbol.name, device_type):
            return _with_float32_result(bound, device_type)
        case Autocast.FLOAT32:
            return _simplified(bound, Rewrite(device_type, torch.float32))
        case Autocast.PROMOTE:
            return _promoting(bound, device_type, dtype)
    return None


def candidate_rewrites(bound: BoundSymbol, context: Context) -> Iterator[Rewrite]:
    """Rewrites that may be right, the likely ones first; each once."""
    seen: set[Rewrite] = set()
    for rewrite in _candidates(bound, context):
        if rewrite is not None and rewrite not in seen:
            seen.add(rewrite)
            yield rewrite


def _candidates(bound: BoundSymbol, context: Context) -> Iterator[Rewrite | None]:
    yield rewrite_by_class(bound, context)
    yield UNCHANGED
    found = _device(bound, context)
    if found is not None:
        device_type, dtype = found
        yield _simplified(bound, Rewrite(device_type, dtype))
        yield _simplified(bound, Rewrite(device_type, torch.float32))


def _device(bound: BoundSymbol, context: Context) -> tuple[str, torch.dtype] | None:
    """The kind of device, with its autocast dtype, that all eligible arguments are on."""
    proxies = tensor_inputs_of(bound)
    found = [pair for pair in context.autocast if any(is_eligible(proxy, pair[0]) for proxy in proxies)]
    return found[0] if len(found) == 1 else None


def _simplified(bound: BoundSymbol, rewrite: Rewrite) -> Rewrite:
    """`UNCHANGED` in place of a rewrite that converts nothing."""
    return rewrite if any(map(rewrite.conversion, tensor_inputs_of(bound))) else UNCHANGED


def _with_float32_result(bound: BoundSymbol, device_type: str) -> Rewrite:
    first = next(iter(tensor_inputs_of(bound)))
    given = any(isinstance(leaf, torch.dtype) for leaf in iterate_leaves((bound.args, bound.kwargs)))
    if given or not is_eligible(first, device_type) or first.dtype is torch.float32:
        return UNCHANGED
    return Rewrite(device_type, result_dtype=torch.float32)


def _promoting(bound: BoundSymbol, device_type: str, dtype: torch.dtype) -> Rewrite:
    dtypes = {proxy.dtype for proxy in tensor_inputs_of(bound) if is_eligible(proxy, device_type)}
    return _simplified(bound, Rewrite(device_type, torch.float32 if torch.float32 in dtypes else dtype))
