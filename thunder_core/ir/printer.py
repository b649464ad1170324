"""Traces as Python modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.function_printer import CHECKED, FunctionPrinter
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.location import SourceLocation

if TYPE_CHECKING:
    from thunder_core.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class PrintedTrace:
    """A printed module.

    Attributes:
        source: its text.
        locations: the user's line for each 1-based line of the text that is a call.
        local_targets: what to bind names to that cannot be imported.
        checked: the same text, line by line, with a check of the result of each call that belongs to an executor, and a
            call of ``checks_passed`` at the end. Without comments only; empty where there are no such calls.
        claimed: these calls, by the numbers that the checks get.
    """

    source: str
    locations: dict[int, SourceLocation]
    local_targets: dict[str, Callable[..., Any]]
    checked: str
    claimed: dict[int, BoundSymbol]


def print_trace(trace: Trace, *, lowered: bool = False, comments: bool = True) -> str:
    """``trace`` as a Python module that defines the function ``trace.name`` and needs nothing else to run.

    Args:
        lowered: show, as comments, what each line was lowered to.
        comments: with headers, user lines and types; without them the module is only good for execution.
    """
    return render_trace(trace, lowered=lowered, comments=comments).source


def render_trace(
    trace: Trace,
    *,
    lowered: bool = False,
    comments: bool = True,
    boxed: bool = False,
    sizes: tuple[str, ...] | None = None,
) -> PrintedTrace:
    """Like `print_trace`, with the user's lines in machine-readable form.

    Args:
        boxed: the function takes its inputs as one list, and empties it.
        sizes: the symbols that the function takes behind its inputs; by default those that it has.
    """
    return _ModulePrinter(lowered, comments).render(trace, boxed, sizes)


class _ModulePrinter:
    """Prints the functions of one module: bodies of higher-order symbols first, the trace itself last."""

    def __init__(self, lowered: bool, comments: bool) -> None:
        self.lowered = lowered
        self.comments = comments
        self.literals = LiteralPrinter(self._body_name, self._value_names, exact=not comments)
        self.functions: list[FunctionPrinter] = []
        self.value_names: set[str] = set()
        self.bodies: list[tuple[Trace, str]] = []
        self.function_names: set[str] = set()

    def render(self, trace: Trace, boxed: bool, sizes: tuple[str, ...] | None) -> PrintedTrace:
        self.function_names.add(trace.name)
        self._function(trace, trace.name, boxed, sizes)
        main = self.functions[-1]
        lines = main.header() if self.comments else []
        lines.extend(f"import {module}" for module in sorted(self.literals.modules, key=_import_order) if module)
        if self.literals.constants:
            lines.append(f"from math import {', '.join(sorted(self.literals.constants))}")
        locations: dict[int, SourceLocation] = {}
        checked: dict[int, str] = {}
        claimed: dict[int, BoundSymbol] = {}
        for function in self.functions:
            if self.comments:
                lines += ["", ""] if function is main else ["", "", *function.header()]
            start = len(lines) + 1
            locations.update({start + index: location for index, location in function.locations})
            for index, indent, bound in () if self.comments else function.claimed:
                checked[start - 1 + index] = indent + function.line(bound, len(claimed))
                claimed[len(claimed)] = bound
            lines += function.lines
        lines.append("")
        # its methods would keep all that was printed until reference cycles are collected
        self.literals.body_name, self.literals.taken = None, frozenset
        local = self.literals.local_targets
        return PrintedTrace("\n".join(lines), locations, local, _with_checks(lines, checked), claimed)

    def _function(self, trace: Trace, name: str, boxed: bool = False, sizes: tuple[str, ...] | None = None) -> None:
        function = FunctionPrinter(self.literals, lowered=self.lowered, comments=self.comments)
        self.value_names |= trace.names()
        function.print_function(trace, name, boxed=boxed, sizes=sizes)
        self.functions.append(function)

    def _value_names(self) -> set[str]:
        return self.function_names | self.value_names

    def _body_name(self, body: Trace) -> str:
        for known, name in self.bodies:
            if known is body or known == body:
                return name
        name, number = body.name, 1
        while name in self.function_names:
            name, number = f"{body.name}_{number}", number + 1
        self.function_names.add(name)
        self.bodies.append((body, name))
        self._function(body, name)
        return name


def _with_checks(lines: list[str], checked: dict[int, str]) -> str:
    """The text with the lines at these places replaced, and a call before the last ``return``."""
    if not checked:
        return ""
    last = max(index for index, line in enumerate(lines) if line)
    lines = [checked.get(index, line) for index, line in enumerate(lines)]
    lines[last] = f"    {CHECKED}(); {lines[last].lstrip()}"
    return "\n".join(lines)


def _import_order(module: str) -> tuple[bool, str]:
    return module.split(".")[0] != "torch", module
