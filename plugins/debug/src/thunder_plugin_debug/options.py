"""The options of the transforms, as configurations give them."""

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
"""Where a function is."""


class LineOptions(TransformOptions):
    """What all of them take: which lines they look at."""

    include: tuple[str, ...] = ()
    """Patterns (`*`, `?`): lines are looked at if one of them matches the name that traces print; empty: all lines."""
    exclude: tuple[str, ...] = ()
    """Patterns of lines that are left alone, whatever `include` has."""


class LineCallbacksOptions(LineOptions):
    """Of the transform ``line_callbacks``. One of the two must be there."""

    before_line: Callable | None = None
    """What is called with `(line, args, kwargs)` before each line: `package.module:function`."""
    after_line: Callable | None = None
    """What is called with `(line, args, kwargs, result)` after each line."""


class LineTimingOptions(LineOptions):
    """Of the transform ``line_timing``."""

    report: Literal["exit", "none"] = "exit"
    """Write the table to the standard error when Python exits, or not at all."""
    rows: PositiveInt = 30
    """How many lines of the program that table shows."""


class NanFinderOptions(LineOptions):
    """Of the transform ``nan_finder``."""

    inf: bool = False
    """Look for infinities as well."""
    inputs: bool = False
    """Tell of what arguments and parameters have, too, where no line passes it on."""
    action: Literal["error", "warn"] = "error"
    """Raise `NonFiniteError` at the first one, or warn about each line once and go on."""


class NvtxRangesOptions(LineOptions):
    """Of the transform ``nvtx_ranges``."""


class BisectOptions(LineOptions):
    """Of the transform ``bisect``."""

    rtol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Relative tolerance of values; absent: by dtype."""
    atol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Absolute tolerance of values; absent: the smallest normal number of the dtype."""
    action: Literal["error", "warn"] = "error"
    """Raise `DivergenceError` at the first line that differs, or warn about each line once and go on."""
