"""The options of the transforms in configurations."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PositiveInt

from thunder_core.plugins import TransformOptions

_CALLABLE: Final = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$"


def _callable(text: str) -> str:
    if re.fullmatch(_CALLABLE, text) is None:
        raise ValueError(f"must be package.module:function, not the text {text!r}")
    return text


Callable = Annotated[str, AfterValidator(_callable), Field(json_schema_extra={"pattern": _CALLABLE})]
"""The path of a function."""


class LineOptions(TransformOptions):
    """Options of all transforms: the operations that they inspect."""

    include: tuple[str, ...] = ()
    """Patterns (`*`, `?`): operations whose name in traces matches one of them are inspected; empty: all operations."""
    exclude: tuple[str, ...] = ()
    """Patterns of operations that are left unchanged, even if `include` matches."""


class LineCallbacksOptions(LineOptions):
    """Options of ``line_callbacks``. At least one is required."""

    before_line: Callable | None = None
    """A function that is called with `(line, args, kwargs)` before each operation: `package.module:function`."""
    after_line: Callable | None = None
    """A function that is called with `(line, args, kwargs, result)` after each operation."""


class LineTimingOptions(LineOptions):
    """Options of ``line_timing``."""

    report: Literal["exit", "none"] = "exit"
    """Write the table to the standard error when Python exits, or do not write it."""
    rows: PositiveInt = 30
    """Number of operations in that table."""


class NanFinderOptions(LineOptions):
    """Options of ``nan_finder``."""

    inf: bool = False
    """Check for infinities as well."""
    inputs: bool = False
    """Report NaNs in arguments and parameters, even if no operation propagates them."""
    action: Literal["error", "warn"] = "error"
    """Raise `NonFiniteError` at the first one, or warn once per operation and continue."""


class NvtxRangesOptions(LineOptions):
    """Options of ``nvtx_ranges``."""


class BisectOptions(LineOptions):
    """Options of ``bisect``."""

    rtol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Relative tolerance of values; by default that of the dtype."""
    atol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Absolute tolerance of values; by default the smallest normal number of the dtype."""
    action: Literal["error", "warn"] = "error"
    """Raise `DivergenceError` at the first operation that differs, or warn once per operation and continue."""
