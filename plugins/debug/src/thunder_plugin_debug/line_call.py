"""Replacement of the functions that operations call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import CallStyle, Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Phase, TransformContext
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.plain_name import plain_name


class LineCall:
    """Replaces ``function`` in the operation ``line``: called with the same arguments, it returns the same result."""

    __slots__ = ("function", "line")

    def __init__(self, line: Line, function: Callable[..., Any]) -> None:
        self.line = line
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; overridden by subclasses."""
        return self.function(*args, **kwargs)


MakeCall = Callable[[Line, BoundSymbol], LineCall | None]
"""From the description of an operation and its bound symbol to the replacement; None leaves it unchanged."""


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an operation before any replacement."""
    while isinstance(function, LineCall):
        function = function.function
    return function


def with_calls(
    trace: Trace,
    context: TransformContext,
    name: str,
    make: MakeCall,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> Trace:
    """The program with the replacements that ``make`` returns.

    Executor, reference, tags, effects, context and location of the operations are preserved, so that they can be
    wrapped again.

    Args:
        trace: the program.
        context: the context of the pass.
        name: name of the transform, which is printed with the calls.
        make: creates the replacements.
        include, exclude: patterns of operations; operations that are not selected stay unchanged.
    """
    lines = []
    for index, bound in enumerate(trace.symbols):
        line = line_of(bound, index, context.phase)
        call = make(line, bound) if selected(line, include, exclude) else None
        lines.append(bound if call is None else _calling(bound, call, name))
    return trace.with_symbols(lines, name)


def line_of(bound: BoundSymbol, index: int, phase: Phase) -> Line:
    """The description of an operation before any replacement."""
    target = bound.symbol.target
    return target.line if isinstance(target, LineCall) else Line.of(bound, index, phase)


def _calling(bound: BoundSymbol, call: LineCall, name: str) -> BoundSymbol:
    printed = f"{name}_{plain_name(bound.symbol.name)}"
    tags = bound.symbol.tags | {Tag.LOCAL}
    symbol = replace(bound.symbol, name=printed, target=call, style=CallStyle.FUNCTION, tags=tags)
    return replace(bound, symbol=symbol)


def selected(line: Line, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    """Whether the patterns select an operation, by its function, its computation, or a part of it."""
    if any(_matches(pattern, line) for pattern in exclude):
        return False
    return not include or any(_matches(pattern, line) for pattern in include)


def unmatched(
    name: str, include: tuple[str, ...], exclude: tuple[str, ...], symbols: Sequence[BoundSymbol]
) -> list[str]:
    """A sentence about each pattern of the transform ``name`` that matches no operation of a program."""
    lines = [line_of(bound, 0, Phase.INFERENCE) for bound in symbols]
    return [
        f"{option} of {name}: the pattern {pattern!r} matches no operation of this program"
        for option, patterns in (("include", include), ("exclude", exclude))
        for pattern in dict.fromkeys(patterns)
        if not any(_matches(pattern, line) for line in lines)
    ]


def _matches(pattern: str, line: Line) -> bool:
    return any(fnmatchcase(name, pattern) for name in (line.function, line.operation, *line.operations))
