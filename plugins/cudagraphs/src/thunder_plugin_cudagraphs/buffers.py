"""Static buffers for inputs that are copied before each replay."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.ir.geometry import nested
from thunder_plugin_cudagraphs.pytorch_internals import foreach_copy_


class Buffers:
    """The static buffers of one graph.

    Attributes:
        positions: of the inputs that are copied.
    """

    __slots__ = ("_extents", "_plain", "_targets", "positions")

    def __init__(self) -> None:
        self.positions: list[int] = []
        self._targets: list[torch.Tensor] = []
        self._extents: list[int | None] = []
        self._plain = True

    def add(self, position: int, value: torch.Tensor) -> torch.Tensor:
        """A tensor like ``value``, with its strides, into which `fill` copies the input at this position."""
        value = value.detach()
        extent = None if nested(value.shape, value.stride()) else _extent(value)
        if extent is None:
            buffer = target = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        else:  # overlapping elements cannot be copied one by one
            target = torch.empty(extent, dtype=value.dtype, device=value.device)
            buffer = target.as_strided(value.shape, value.stride())
            self._plain = False
        self.positions.append(position)
        self._targets.append(target)
        self._extents.append(extent)
        return buffer

    def fill(self, values: list[Any]) -> None:
        """Copy the inputs."""
        positions, targets = self.positions, self._targets
        if not positions:
            return
        sources = [values[position] for position in positions]
        if not self._plain:
            sources = [
                source if extent is None else source.as_strided((extent,), (1,))
                for source, extent in zip(sources, self._extents, strict=True)
            ]
        if torch.is_grad_enabled():
            with torch.no_grad():
                copy_all(targets, sources)
        else:
            copy_all(targets, sources)


def copy_all(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy each source to its target, many in one kernel."""
    if len(targets) == 1:
        targets[0].copy_(sources[0])
    elif targets:
        foreach_copy_(targets, sources)


def _extent(tensor: torch.Tensor) -> int:
    """Number of elements from the first to the last in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
