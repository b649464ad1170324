"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from thunder_core.plugins import ExecutorOptions


class InductorOptions(ExecutorOptions):
    """Options of ``inductor``."""

    matmul: Literal["outside", "inside"] = "outside"
    """Whether regions hold products of matrices, convolutions and attention. Outside, PyTorch's libraries run them, and
    regions are small and alike, so that few have to be compiled. Inside, a region can span the whole program."""
    mode: Literal["default", "max-autotune"] = "default"
    """`"max-autotune"` is `max_autotune` and `coordinate_descent` together: slower to compile, and faster where a GPU's
    kernels are well chosen. CUDA graphs are no mode here, but the transform `cudagraphs`."""
    max_autotune: bool = False
    """Time several kernels for each operation while compiling, and take the fastest."""
    coordinate_descent: bool = False
    """Tune the block sizes of each kernel while compiling."""
    smallest: int = Field(default=2, ge=1)
    """Regions of fewer lines are left to the executors after this one."""
    inductor_config: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Further settings, by their names in `torch._inductor.config`."""

    @field_validator("mode", mode="before")
    @classmethod
    def _without_cuda_graphs(cls, value: object) -> object:
        if value == "reduce-overhead":
            raise ValueError("CUDA graphs are no matter of the executor; use the transform 'cudagraphs'")
        return value

    def settings(self) -> dict[str, bool | int | float | str]:
        """Inductor's settings that these options mean."""
        tuned = self.mode == "max-autotune"
        return {
            "max_autotune": tuned or self.max_autotune,
            "coordinate_descent_tuning": tuned or self.coordinate_descent,
            **self.inductor_config,
        }
