"""The options of the transform, as programs use them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """See `thunder_plugin_cudagraphs.options.CUDAGraphsOptions`, which has the same names."""

    warmup: int = 2
    copy_below: int = 1 << 20
    max_graphs: int = 64
    variants: int = 4
    max_captures: int = 16
    patience: int = 8
    memory: float = 0.5
