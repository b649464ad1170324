"""Gated linear units, without the linear layers (Shazeer 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``.

    Args:
        gate, up: floating point, of one shape; the result has it, in the dtype that PyTorch promotes to.
    """
    return F.silu(gate) * up


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """``gelu(gate) * up``.

    Args:
        gate, up: floating point, of one shape; the result has it, in the dtype that PyTorch promotes to.
        approximate: "none" or "tanh", as `torch.nn.functional.gelu` has it.
    """
    return F.gelu(gate, approximate=approximate) * up
