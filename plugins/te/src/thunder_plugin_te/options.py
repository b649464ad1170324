"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from thunder_core.plugins import ExecutorOptions

RecipeName = Literal["current", "delayed", "block"]


class TeOptions(ExecutorOptions):
    """Options of ``te``."""

    recipe: RecipeName = "current"
    """How tensors are scaled: from their current amax (`current`), from the amax of past steps (`delayed`), or in
    blocks of 128 elements (`block`).
    """
    fp8_format: Literal["hybrid", "e4m3"] | None = None
    """`hybrid`: gradients of results are E5M2, other tensors E4M3. None: `e4m3` for `block`, `hybrid` for the others,
    as in Transformer Engine.
    """
    fast_accumulation: Literal["forward", "always", "never"] = "forward"
    """Matmuls that may accumulate with fewer bits. `block` never does."""
    layers: tuple[str, ...] = ()
    """Patterns (`*`, `?`) of layers to run in FP8; empty: all. They are matched with the name of the weight in traces,
    with dots or underscores, and with the source line that calls the layer.
    """
    exclude_layers: tuple[str, ...] = ("*lm_head*",)
    """Patterns of layers to exclude, even if `layers` matches."""
    least_features: int = Field(default=256, ge=16)
    """Layers with fewer input or output features are excluded."""
    least_tokens: int = Field(default=256, ge=16)
    """Calls with fewer rows of input (batch times sequence) are excluded."""
    amax_history: int = Field(default=1024, ge=1)
    """`delayed`: number of steps in the history of amax values."""
    amax_algorithm: Literal["max", "most_recent"] = "max"
    """`delayed`: use the maximum of the history, or the most recent amax."""
    margin: int = Field(default=0, ge=0)
    """`delayed`: scales are divided by two to this power, as a margin above amax."""
