"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from thunder_core.plugins import ExecutorOptions


class InductorOptions(ExecutorOptions):
    """Options of ``inductor``."""

    matmul: Literal["outside", "inside"] = "outside"
    """Whether regions contain matmuls, convolutions and attention. With `"outside"`, PyTorch's libraries run them, and
    regions are small and similar, so that few are compiled. With `"inside"`, a region can span the whole program.
    """
    mode: Literal["default", "max-autotune"] = "default"
    """`"max-autotune"` enables `max_autotune` and `coordinate_descent`: compilation is slower, and GPU kernels may be
    faster. For CUDA graphs use the transform `cudagraphs`.
    """
    max_autotune: bool = False
    """Time several kernels for each operation during compilation, and use the fastest."""
    coordinate_descent: bool = False
    """Tune the block sizes of each kernel during compilation."""
    smallest: int = Field(default=2, ge=1)
    """Regions with fewer operations go to the next executors."""
    inductor_config: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Further settings, by their names in `torch._inductor.config`."""

    @field_validator("mode", mode="before")
    @classmethod
    def _without_cuda_graphs(cls, value: object) -> object:
        if value == "reduce-overhead":
            raise ValueError("the executor does not support CUDA graphs; use the transform 'cudagraphs'")
        return value

    def settings(self) -> dict[str, bool | int | float | str]:
        """Inductor's settings for these options."""
        tuned = self.mode == "max-autotune"
        return {
            "max_autotune": tuned or self.max_autotune,
            "coordinate_descent_tuning": tuned or self.coordinate_descent,
            **self.inductor_config,
        }
