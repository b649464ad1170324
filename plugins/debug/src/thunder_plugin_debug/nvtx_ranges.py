"""NVTX ranges, which NVIDIA's profilers show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.errors import PluginError
from thunder_core.ir.trace import Trace
from thunder_plugin_debug.debug_transform import DebugTransform
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall, MakeCall
from thunder_plugin_debug.options import NvtxRangesOptions


@dataclass(frozen=True, eq=False)
class NvtxRanges(DebugTransform):
    """Opens a range around each operation: ``torch.nn.functional.linear [cudnn] model.py:12``.

    Raises:
        PluginError: CUDA is not available.
    """

    name: ClassVar[str] = "nvtx_ranges"
    after: ClassVar[tuple[str, ...]] = ("line_timing",)

    def __post_init__(self) -> None:
        if not torch.cuda.is_available():
            build = "was built without CUDA" if torch.version.cuda is None else "sees no CUDA device"
            raise PluginError(
                f"nvtx_ranges marks lines for NVIDIA's profilers, but this PyTorch ({torch.__version__}) {build}",
                advice=("remove nvtx_ranges from the transforms", "line_timing measures lines on any device"),
            )

    def calls(self, trace: Trace) -> MakeCall:
        """Surround each operation with a range."""
        return lambda line, bound: _CallInRange(line, bound.symbol.target)


class _CallInRange(LineCall):
    __slots__ = ("text",)

    def __init__(self, line: Line, function: Callable[..., Any]) -> None:
        super().__init__(line, function)
        self.text = f"{line.operation} [{line.executor}] {line.place}".rstrip()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        torch.cuda.nvtx.range_push(self.text)
        try:
            return self.function(*args, **kwargs)
        finally:
            torch.cuda.nvtx.range_pop()


def from_options(options: NvtxRangesOptions) -> NvtxRanges:
    """The transform for the options of a configuration."""
    return NvtxRanges(options.include, options.exclude)
