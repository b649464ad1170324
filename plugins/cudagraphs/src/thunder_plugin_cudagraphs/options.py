"""The options of the transform in configurations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from thunder_core.plugins import TransformOptions


class CUDAGraphsOptions(TransformOptions):
    """Of the transform ``cudagraphs``."""

    when: Literal["auto", "always"] = "always"
    """`auto` captures where it saves time, as measured in the first calls: where the host takes at least half as long
    to launch the kernels of a program as the device to run them, and calls with graphs are faster or relieve the host.
    `always` captures every program that can be captured.
    """
    phases: tuple[Literal["inference", "forward", "backward"], ...] = ("inference", "forward", "backward")
    """The programs to capture: those without gradients, and the forward and backward of those with gradients."""
    warmup: NonNegativeInt = 2
    """Number of calls of a program without a graph before it is captured, in which kernels are tuned and loaded."""
    copy_below: NonNegativeInt = Field(default=1 << 20)
    """Results of at most this many bytes are copied out of the graph's memory, so that they do not prevent replays."""
    max_graphs: PositiveInt = 64
    """Largest number of graphs on a device; beyond it the least recently used graph is freed."""
    variants: PositiveInt = 4
    """Largest number of graphs of one program: for other addresses of parameters, or while results of one are in use.
    """
    max_captures: PositiveInt = 16
    """Largest number of captures of one program, after which it runs without a graph."""
    patience: PositiveInt = 8
    """Number of calls without a graph, because results of earlier calls are in use, after which another graph is
    captured.
    """
    memory: float = Field(default=0.5, gt=0, le=1)
    """Largest share of the free memory of the device for the inputs, intermediate values and results of a graph. A
    program that needs more is not captured.
    """
    trust: tuple[str, ...] = ()
    """Patterns (`*`, `?`) of Python functions that may be captured although they are not known to work only on the
    device; their other effects happen once.
    """
