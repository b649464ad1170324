"""PyTorch's normalizations on a CPU, of an input that is narrower than what it is multiplied by.

Autocast makes such calls. The kernels then give statistics in float32; PyTorch's metadata and decompositions say that
they have the dtype of the input, and what is compiled for that dtype reads other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import aten_native_batch_norm_legit

_NARROW: Final = (torch.bfloat16, torch.float16)

_aten = torch.ops.aten

_PARAMETERS: Final[Mapping[Any, slice]] = {
    _aten.native_layer_norm.default: slice(2, 4),
    _aten.native_group_norm.default: slice(1, 3),
    _aten.native_batch_norm.default: slice(1, 5),
    aten_native_batch_norm_legit: slice(1, 5),
}
"""Positions of weight and bias, and of running statistics."""


def has_wide_statistics(operator: Any, args: tuple[Any, ...]) -> bool:
    """Whether the results of this call but the first are float32, whatever PyTorch says of them."""
    positions = _PARAMETERS.get(operator)
    if positions is None or args[0].device.type != "cpu" or args[0].dtype not in _NARROW:
        return False
    return any(each is not None and each.dtype is torch.float32 for each in args[positions])


def with_wide_statistics(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Those of the normalizations among these decompositions, with statistics as the kernels give them."""
    return {op: _computed_wide(op, decompositions[op]) for op in _PARAMETERS if op in decompositions}


def _computed_wide(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def normalized(*args: Any) -> Any:
        if not has_wide_statistics(operator, args):
            return decomposition(*args)
        output, *statistics = decomposition(args[0].float(), *args[1:])
        return (output.to(args[0].dtype), *statistics)

    return normalized
