"""Checks of results for NaNs and infinities, and of arguments, to decide whether an operation produced them."""

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
"""Adds to a finding the part of the operation that produced it; called with the positional arguments of the operation.
"""
Before = frozenset[tuple[str, Kind]]
"""Names of values that were not finite before the operation, with their kind."""

_EMPTY: Final = re.compile(r"(^|[._])(empty|resize)(_|\.|$)")


def leaves_memory_as_it_is(bound: BoundSymbol) -> bool:
    """Whether the result is uninitialized memory, as for `torch.empty`."""
    return _EMPTY.search(bound.symbol.name) is not None


class Given:
    """The inputs of a program that no operation has written yet: a NaN in them is an input."""

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
        """Those that this operation reads unmodified."""
        index = self._index[id(bound)]
        names = {proxy.name for proxy in bound.inputs()} & self._storages.keys()
        return frozenset(name for name in names if self._written.get(self._storages[name], index) >= index)

    def first_at(self, bound: BoundSymbol) -> frozenset[str]:
        """Those of them that no operation before has read."""
        return frozenset(name for name in self.at(bound) if self._taken[name] == self._index[id(bound)])


class CheckedCall(LineCall):
    """Calls an operation, and reports results that are not finite although its arguments are.

    Attributes:
        given: names of arguments that are inputs of the program.
        checked: names of those that are checked before the operation runs.
        kinds: the kinds of values to look for.
        report: called with each finding.
        search: for an operation with parts.
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
        results = named_tensors(self.bound.output, result)
        if self.written:
            results += [(name, value) for name, value in self._taken(args, kwargs) if name in self.written]
        for name, value in results:
            if can_be_non_finite(value):
                for kind in self.kinds:
                    if kind.occurs(value):
                        self._judge(kind, name, value, (args, kwargs), before)
        return result

    def _before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Before:
        """The values that are not finite before the operation, among those to check and those that it writes."""
        names = set()
        for name, value in self._taken(args, kwargs):
            if name not in self.checked and name not in self.written:
                continue
            for kind in (NAN, INFINITY) if can_be_non_finite(value) else ():
                if kind.occurs(value):
                    names.add((name, kind))
                    if name in self.checked and kind in self.kinds:
                        self.report(self._finding(kind, name, True, value, (args, kwargs)))
        return frozenset(names)

    def _judge(
        self,
        kind: Kind,
        name: str,
        value: torch.Tensor,
        arguments: Any,
        before: Before,
    ) -> None:
        """Report a result unless its arguments, or literals of the program, explain it."""
        causes = (NAN,) if kind is NAN else (NAN, INFINITY)
        taken = [(source, tensor) for source, tensor in self._taken(*arguments) if can_be_non_finite(tensor)]
        reports = [
            (source, tensor)
            for source, tensor in taken
            if any((source, cause) in before if source in self.written else cause.occurs(tensor) for cause in causes)
        ]
        came_in = [
            (source, tensor) for source, tensor in reports if source in self.given and source not in self.checked
        ]
        if came_in and kind is NAN:
            source, tensor = came_in[0]
            self.report(self._finding(kind, source, True, tensor, arguments))
        elif not reports and not any(cause.among_literals(arguments) for cause in causes):
            finding = self._finding(kind, name, False, value, arguments)
            self.report(finding if self.search is None else self.search(finding, kind, arguments[0]))

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
        return named_tensors((self.bound.args, self.bound.kwargs), (args, kwargs))

    def _finding(self, kind: Kind, name: str, came_in: bool, value: torch.Tensor, arguments: Any) -> Finding:
        ranges = tuple([describe_range(*item) for item in dict(self._taken(*arguments)).items()])
        return Finding(
            self.line, kind.name, name, came_in, kind.count(value), value.numel(), ranges, self.line.location
        )
