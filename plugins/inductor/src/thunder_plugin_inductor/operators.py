"""Which ATen operators Inductor makes kernels of. Importing this imports most of Inductor."""

from __future__ import annotations

from typing import Any

from torch._inductor import lowering
from torch._inductor.decomposition import select_decomp_table
from torch.utils.flop_counter import flop_registry


def refusal(operator: Any, matmul_inside: bool) -> str | None:
    """Why the operator is not in regions; None if Inductor makes a kernel of it that is wanted."""
    packet = getattr(operator, "overloadpacket", operator)
    if packet in flop_registry:
        return None if matmul_inside else f"{packet} is left to PyTorch's libraries (matmul: outside)"
    if operator in lowering.fallbacks:
        return f"Inductor has no kernel of its own for {operator}"
    if operator in select_decomp_table() or operator in lowering.lowerings:
        return None
    return f"Inductor cannot lower {operator}"
