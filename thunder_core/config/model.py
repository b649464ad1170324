"""The model of a configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

CacheMode = Literal["constant values", "same input", "no caching"]


class Budget(BaseModel):
    """``recompute: {budget: 0.5}``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    budget: float = Field(ge=0)
    """Save at most this share of the bytes that the default saves, if any choice does."""


class ThunderConfig(BaseModel):
    """How programs are compiled. Frozen; equal configurations are equal and have equal hashes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, arbitrary_types_allowed=True, title="Thunder"
    )

    extends: str | None = None
    """The preset or file that this one changes."""
    requires: tuple[str, ...] = ()
    """Distributions that must be installed, with version specifiers: `thunder-plugin-cudnn>=0.1`."""
    executors: tuple[Any, ...] | None = None
    """Who is asked to run operations, in order. The reference executor follows them; absent: the default preset's."""
    transforms: tuple[Any, ...] = ()
    """Passes to add to the pipeline, or options of those that run by default."""
    front_end: str = "run"
    """How programs are recorded."""
    cache: CacheMode = "constant values"
    """Guard on everything the program read, or trust that only the data of tensors changes, or compile at each call."""
    sharp_edges: Literal["allow", "warn", "error"] = "warn"
    """What to do when the program consumes Python's or NumPy's random state."""
    recompute: Literal["none", "cheap", "aggressive"] | Budget = "cheap"
    """What training computes again in backward instead of saving it."""
    recompile_warning: PositiveInt = 8
    """Number of compilations of one program after which each further one warns."""
    recompile_limit: PositiveInt = 64
    """Number of cached entries after which eager PyTorch runs the program instead."""
