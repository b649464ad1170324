"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from thunder_core.plugins import ExecutorOptions


class InductorOptions(ExecutorOptions):
    """Options of ``inductor``."""

    matmul: Literal["outside", "inside"] = "outside"
    """Whether regions hold products of matrices, convolutions and attention. Outside, PyTorch's libraries run them, and
    regions are small and alike, so that few have to be compiled. Inside, a region can span the whole program."""
    max_autotune: bool = False
    """Time several kernels for each operation while compiling, and take the fastest."""
    coordinate_descent: bool = False
    """Tune the block sizes of each kernel while compiling."""
    smallest: int = Field(default=2, ge=1)
    """Regions of fewer lines are left to the executors after this one."""
    inductor_config: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Further settings, by their names in `torch._inductor.config`."""
