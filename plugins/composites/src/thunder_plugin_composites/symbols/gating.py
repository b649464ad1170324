"""Gated linear units, without the linear layers (Shazeer 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``.

    Args:
        gate, up: floating point, of equal shape. The result has this shape, and the dtype of PyTorch's promotion.
    """
    return F.silu(gate) * up


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """``gelu(gate) * up``.

    Args:
        gate, up: floating point, of equal shape. The result has this shape, and the dtype of PyTorch's promotion.
        approximate: "none" or "tanh", as for `torch.nn.functional.gelu`.
    """
    return F.gelu(gate, approximate=approximate) * up
