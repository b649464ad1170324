"""An operation of the tests' own."""

from __future__ import annotations

import torch

from thunder_core.symbols import recorded


@recorded
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
