"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from thunder_core.plugins import ExecutorOptions

RecipeName = Literal["current", "delayed", "block"]


class TeOptions(ExecutorOptions):
    """Options of ``te``."""

    recipe: RecipeName = "current"
    """How tensors are scaled: by their own largest value (`current`), by the largest of the past steps (`delayed`), or
    in blocks of 128 elements (`block`)."""
    fp8_format: Literal["hybrid", "e4m3"] | None = None
    """`hybrid`: gradients of results are E5M2 and all else E4M3. None: `e4m3` for `block`, `hybrid` for the others, as
    Transformer Engine has it."""
    fast_accumulation: Literal["forward", "always", "never"] = "forward"
    """Which products may add in fewer bits. `block` never does."""
    layers: tuple[str, ...] = ()
    """Patterns (`*`, `?`) of the layers to run in eight bits; empty: all. They are matched with the name of the weight
    in traces, with dots or underscores, and with the line of the program that calls the layer."""
    exclude_layers: tuple[str, ...] = ("*lm_head*",)
    """Patterns of layers that stay as they are, even if `layers` has them."""
    least_features: int = Field(default=256, ge=16)
    """Layers with fewer inputs or outputs stay as they are."""
    least_tokens: int = Field(default=256, ge=16)
    """Calls with fewer rows of input (batch times sequence) stay as they are."""
    amax_history: int = Field(default=1024, ge=1)
    """`delayed`: number of steps that the largest value is taken of."""
    amax_algorithm: Literal["max", "most_recent"] = "max"
    """`delayed`: the largest value of these steps, or that of the latest."""
    margin: int = Field(default=0, ge=0)
    """`delayed`: bits of room above the largest value: scales are divided by two to this power."""
