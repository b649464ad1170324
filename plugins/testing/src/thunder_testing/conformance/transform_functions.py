"""The functions that transforms are tested with, each of two matrices."""

from __future__ import annotations

from typing import Any

import torch


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Elementwise operations."""
    return torch.sin(x) * y + torch.exp(-x * x)


def repeated(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Equal calls, some under another mode, and a value that is its argument."""
    return torch.exp(x) * y, torch.exp(x) + y, torch.exp(x.detach()), x + 0


def constants(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Values that depend on no input."""
    steps = torch.arange(4, dtype=x.dtype) / torch.full((4,), 3.0)
    return x * steps + torch.eye(4)[1] * y


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Writes to an argument and to a value of the program's own."""
    state = x.detach()
    state.add_(1).mul_(2)
    scratch = y * 2
    scratch[0] = 0
    scratch.clamp_(min=-1)
    return scratch + state


def views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Writes through views, and results that are views."""
    work = y * 1
    work.t()[0].mul_(3)
    work[1:, ::2] += 1
    return work, work.t(), x[1], torch.cat([work, x]).view(-1)


def containers(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    """A nested result with an argument, a number and None in it."""
    parts = (x * y).chunk(2)
    return {"parts": list(parts), "argument": x, "number": len(parts), "nothing": None, "nested": (parts[0].sum(),)}


def dtypes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Results of several types."""
    return (x > y) & (y < 1), x.to(torch.bfloat16) * y.to(torch.bfloat16), (x * 8).to(torch.int64), x.sum() * 2


def without_grad(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A part that no gradient goes through."""
    with torch.no_grad():
        scale = (x * y).abs().amax()
    return x / (scale + 1) + y.detach()


FUNCTIONS = (pointwise, repeated, constants, in_place, views, containers, dtypes, without_grad)
