"""Check what a line gives for NaNs and infinities, and find out whether the line made them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensors_written_by
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_plugin_debug.finding import Finding
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall
from thunder_plugin_debug.non_finite import INFINITY, NAN, Kind, can_be_non_finite, describe_range
from thunder_plugin_debug.values import named_tensors

Report = Callable[[Finding], None]
Search = Callable[[Finding, Kind, tuple[Any, ...]], Finding]
"""Adds to a finding which part of the line made it; called with the positional arguments of the line."""
Before = frozenset[tuple[str, Kind]]
"""Names of values that were not finite before the line ran, and how."""

_EMPTY: Final = re.compile(r"(^|[._])(empty|resize)(_|\.|$)")


def leaves_memory_as_it_is(bound: BoundSymbol) -> bool:
    """Whether the result is whatever was in memory before, as that of `torch.empty`."""
    return _EMPTY.search(bound.symbol.name) is not None


class Given:
    """What a program is given: until a line writes it, a NaN in it came in."""

    def __init__(self, trace: Trace) -> None:
        self._storages = {proxy.name: proxy.storage for proxy in trace.inputs if isinstance(proxy, TensorProxy)}
        self._index = {id(bound): index for index, bound in enumerate(trace.symbols)}
        self._written: dict[int, int] = {}
        self._taken: dict[str, int] = {}
        for index, bound in enumerate(trace.symbols):
            for proxy in tensors_written_by(bound):
                self._written.setdefault(proxy.storage, index)
            for taken in bound.inputs():
                self._taken.setdefault(taken.name, index)

    def at(self, bound: BoundSymbol) -> frozenset[str]:
        """Those that this line of the trace takes as they came in."""
        index = self._index[id(bound)]
        names = {proxy.name for proxy in bound.inputs()} & self._storages.keys()
        return frozenset(name for name in names if self._written.get(self._storages[name], index) >= index)

    def first_at(self, bound: BoundSymbol) -> frozenset[str]:
        """Those of them that no line before took."""
        return frozenset(name for name in self.at(bound) if self._taken[name] == self._index[id(bound)])


class CheckedCall(LineCall):
    """Calls a line, and reports what is not finite in its results though its arguments do not account for that.

    Attributes:
        given: names of arguments that the program was given.
        checked: names of those that are checked before the line runs.
        kinds: what to look for.
        report: called with what is found.
        search: of a line that has parts.
    """

    __slots__ = ("bound", "checked", "given", "kinds", "report", "search", "written")

    def __init__(
        self,
        line: Line,
        bound: BoundSymbol,
        given: frozenset[str],
        checked: frozenset[str],
        kinds: tuple[Kind, ...],
        report: Report,
        search: Search | None = None,
    ) -> None:
        super().__init__(line, bound.symbol.target)
        self.bound = bound
        self.given = given
        self.checked = checked
        self.written = frozenset(bound.effects.mutates)
        self.kinds = kinds
        self.report = report
        self.search = search

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before: Before = frozenset()
        if self.checked or self.written:
            before = self._before(args, kwargs)
        result = self.function(*args, **kwargs)
        made = named_tensors(self.bound.output, result)
        if self.written:
            made += [(name, value) for name, value in self._taken(args, kwargs) if name in self.written]
        for name, value in made:
            if can_be_non_finite(value):
                for kind in self.kinds:
                    if kind.occurs(value):
                        self._judge(kind, name, value, (args, kwargs), before)
        return result

    def _before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Before:
        """What is not finite before the line runs, among what is checked and what the line will write."""
        found = set()
        for name, value in self._taken(args, kwargs):
            if name not in self.checked and name not in self.written:
                continue
            for kind in (NAN, INFINITY) if can_be_non_finite(value) else ():
                if kind.occurs(value):
                    found.add((name, kind))
                    if name in self.checked and kind in self.kinds:
                        self.report(self._finding(kind, name, True, value, (args, kwargs)))
        return frozenset(found)

    def _judge(
        self,
        kind: Kind,
        name: str,
        value: torch.Tensor,
        arguments: Any,
        before: Before,
    ) -> None:
        """Report a value of the line unless what it takes, or what the user wrote, accounts for it."""
        causes = (NAN,) if kind is NAN else (NAN, INFINITY)
        taken = [(source, tensor) for source, tensor in self._taken(*arguments) if can_be_non_finite(tensor)]
        found = [
            (source, tensor)
            for source, tensor in taken
            if any((source, cause) in before if source in self.written else cause.occurs(tensor) for cause in causes)
        ]
        came_in = [(source, tensor) for source, tensor in found if source in self.given and source not in self.checked]
        if came_in and kind is NAN:
            source, tensor = came_in[0]
            self.report(self._finding(kind, source, True, tensor, arguments))
        elif not found and not any(cause.among_literals(arguments) for cause in causes):
            finding = self._finding(kind, name, False, value, arguments)
            self.report(finding if self.search is None else self.search(finding, kind, arguments[0]))

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
        return named_tensors((self.bound.args, self.bound.kwargs), (args, kwargs))

    def _finding(self, kind: Kind, name: str, came_in: bool, value: torch.Tensor, arguments: Any) -> Finding:
        ranges = tuple([describe_range(*item) for item in dict(self._taken(*arguments)).items()])
        return Finding(
            self.line, kind.name, name, came_in, kind.count(value), value.numel(), ranges, self.line.location
        )
