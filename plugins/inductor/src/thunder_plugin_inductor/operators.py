"""The ATen operators for which Inductor has kernels. Importing this module imports most of Inductor."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils.flop_counter import flop_registry

from thunder_plugin_inductor.fusible import BY_STRIDES
from thunder_plugin_inductor.pytorch_internals import inductor_lowering, select_decomp_table

_BY_STRIDES: Final = (torch.ops.aten.as_strided, torch.ops.aten.as_strided_copy, torch.ops.aten.as_strided_scatter)


def refusal(operator: Any, matmul_inside: bool) -> str | None:
    """The reason why an operator is declined; None if Inductor has a kernel and the options allow it."""
    packet = getattr(operator, "overloadpacket", operator)
    if packet in flop_registry:
        return None if matmul_inside else f"{packet} is left to PyTorch's libraries (matmul: outside)"
    if packet in _BY_STRIDES:
        return BY_STRIDES
    if operator in inductor_lowering.fallbacks:
        return f"Inductor has no kernel for {operator}"
    if operator in select_decomp_table() or operator in inductor_lowering.lowerings:
        return None
    return f"Inductor cannot lower {operator}"
