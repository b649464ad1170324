"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from thunder_core.plugins import ExecutorOptions

Operation = Literal["sdpa", "layer_norm", "rms_norm"]


class CudnnOptions(ExecutorOptions):
    """Options of ``cudnn``."""

    operations: tuple[Operation, ...] = Field(default=("sdpa",), min_length=1)
    """What is claimed: attention, `F.layer_norm`, and `F.rms_norm` with what models spell out in its place.
    Normalizations are opt-in: a compiler that fuses them with their neighbours makes faster ones."""
    grouped: bool = True
    """Give keys and values that the program repeats for groups of query heads to the kernel as they were before.
    Neither the copies nor the sums over them in backward are made then."""
    dropout: bool = False
    """Take attention with dropout. The weights that are dropped are others than in eager PyTorch with the same seed."""
    deterministic: bool = False
    """Backward of attention adds in the same order each time. It is slower and needs more memory. Where
    `torch.use_deterministic_algorithms` is on, it is so without this option."""
