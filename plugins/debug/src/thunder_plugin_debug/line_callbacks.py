"""User-defined callbacks before and after each operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import torch

from thunder_core.errors import TransformError
from thunder_core.ir.trace import Trace
from thunder_plugin_debug.debug_transform import DebugTransform
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall, MakeCall
from thunder_plugin_debug.options import LineCallbacksOptions

BeforeLine = Callable[[Line, tuple[Any, ...], dict[str, Any]], object]
AfterLine = Callable[[Line, tuple[Any, ...], dict[str, Any], Any], object]


@dataclass(frozen=True, eq=False)
class LineCallbacks(DebugTransform):
    """Calls functions with the arguments and the results of each operation.

    They run under `torch.no_grad`, and their results are ignored. They must not write to their tensors, which are those
    of the program. An exception in a callback propagates to the caller of the program.

    Attributes:
        before_line: called with the description of the operation, its positional and its keyword arguments.
        after_line: called with the same and the result. An in-place operation has already written to its arguments.
    """

    name: ClassVar[str] = "line_callbacks"
    after: ClassVar[tuple[str, ...]] = ("line_timing", "nvtx_ranges", "nan_finder")

    before_line: BeforeLine | None = None
    after_line: AfterLine | None = None

    def __post_init__(self) -> None:
        if self.before_line is None and self.after_line is None:
            raise TransformError(
                "line_callbacks has no function",
                advice=(
                    "set before_line or after_line",
                    "in a configuration: before_line: my_package.module:function",
                ),
            )

    def calls(self, trace: Trace) -> MakeCall:
        """Surround each operation with the callbacks."""
        return lambda line, bound: _CallWithCallbacks(line, bound.symbol.target, self.before_line, self.after_line)


class _CallWithCallbacks(LineCall):
    __slots__ = ("after", "before")

    def __init__(
        self, line: Line, function: Callable[..., Any], before: BeforeLine | None, after: AfterLine | None
    ) -> None:
        super().__init__(line, function)
        self.before = before
        self.after = after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.before is not None:
            with torch.no_grad():
                self.before(self.line, args, kwargs)
        result = self.function(*args, **kwargs)
        if self.after is not None:
            with torch.no_grad():
                self.after(self.line, args, kwargs, result)
        return result


def from_options(options: LineCallbacksOptions) -> LineCallbacks:
    """The transform for the options of a configuration.

    Raises:
        TransformError: a function cannot be imported.
    """
    return LineCallbacks(
        options.include,
        options.exclude,
        _imported("before_line", options.before_line),
        _imported("after_line", options.after_line),
    )


def _imported(option: str, path: str | None) -> Any:
    if path is None:
        return None
    module, _, name = path.partition(":")
    try:
        target: Any = import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise TransformError(
            f"line_callbacks: {option} is {path!r}, which cannot be imported: {error}",
            advice=("write package.module:function, and make sure that `import package.module` works here",),
        ) from error
    if not callable(target):
        raise TransformError(
            f"line_callbacks: {option} is {path!r}, which is a {type(target).__name__}, not a function"
        )
    return target
