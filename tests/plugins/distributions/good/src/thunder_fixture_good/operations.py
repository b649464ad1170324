"""An operation of the plugin's own."""

import torch

from thunder_core.symbols import recorded
from thunder_core.symbols.row import row


@recorded
def double_sine(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
    return torch.sin(x) * 2 * scale


ROWS = [row("thunder_fixture_good.operations.double_sine(x, *, scale=1.0)")]
