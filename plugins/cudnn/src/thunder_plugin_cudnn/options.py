"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from thunder_core.plugins import ExecutorOptions

Operation = Literal["sdpa", "layer_norm", "rms_norm"]


class CudnnOptions(ExecutorOptions):
    """Options of ``cudnn``."""

    operations: tuple[Operation, ...] = Field(default=("sdpa",), min_length=1)
    """The operations to claim: attention, `F.layer_norm`, and `F.rms_norm` with the forms in which models write it.
    Normalizations are opt-in, because compilers that fuse them with adjacent operations are faster.
    """
    grouped: bool = True
    """If the program repeats keys and values for groups of query heads, pass them to the kernel without the copies.
    This also avoids the sums over the copies in backward.
    """
    dropout: bool = False
    """Claim attention with dropout. It drops other weights than eager PyTorch with the same seed."""
    deterministic: bool = False
    """Use a deterministic backward of attention, which is slower and needs more memory. It is always used under
    `torch.use_deterministic_algorithms`.
    """
