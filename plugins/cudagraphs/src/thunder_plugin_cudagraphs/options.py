"""The options of the transform, as configurations give them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from thunder_core.plugins import TransformOptions


class CUDAGraphsOptions(TransformOptions):
    """Of the transform ``cudagraphs``."""

    phases: tuple[Literal["inference", "forward", "backward"], ...] = ("inference", "forward", "backward")
    """Which programs to capture: those without gradients, and the two of those with gradients."""
    warmup: NonNegativeInt = 2
    """How often each program runs without a graph before it is captured: kernels are tuned and loaded meanwhile."""
    copy_below: NonNegativeInt = Field(default=1 << 20)
    """Results of at most that many bytes are copied out of the graph's memory, so that they may be kept for nothing."""
    max_graphs: PositiveInt = 64
    """How many graphs there may be on a device; more than that, and the one that was not used for longest goes."""
    variants: PositiveInt = 4
    """How many of them may be of one program: for other addresses of parameters, or while results of one are in use."""
    max_captures: PositiveInt = 16
    """How often one program may be captured, after which it runs without a graph for good."""
    patience: PositiveInt = 8
    """After how many calls without a graph, as results of earlier ones are in use, another graph is captured."""
    trust: tuple[str, ...] = ()
    """Patterns (`*`, `?`) of Python functions that may be captured though it is not known that they work on the device
    alone; what they do besides happens once."""
