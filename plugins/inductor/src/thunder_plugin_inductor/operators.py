"""Which ATen operators Inductor makes kernels of. Importing this imports most of Inductor."""

from __future__ import annotations

from typing import Any

from torch._inductor import lowering
from torch._inductor.decomposition import select_decomp_table


def refusal(operator: Any) -> str | None:
    """Why Inductor makes no kernel of the operator; None if it does."""
    if operator in lowering.fallbacks:
        return f"Inductor has no kernel of its own for {operator}"
    if operator in select_decomp_table() or operator in lowering.lowerings:
        return None
    return f"Inductor cannot lower {operator}"
