"""The traces of compiled programs as tables: each different op, location and generated code is there once."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from typing import Any

from thunder_core.ir.annotation import Annotator
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.printer import FunctionPrinter
from thunder_core.ir.trace import Trace
from thunder_core.passes.admission import region_call


class Tables:
    """The ops, locations and texts of generated code of several traces.

    Attributes:
        ops: rows ``[text, symbol, executor, location, outputs, inputs, parts, code]``. ``location`` and ``code`` are
            positions in the other tables, -1 for none; ``parts`` are positions of ops.
        locations: rows ``[file, line, function, module, text of the line]``.
        codes: generated code.
    """

    def __init__(self) -> None:
        self.ops: list[list[Any]] = []
        self.locations: list[list[Any]] = []
        self.codes: list[str] = []
        self._known: dict[Any, int] = {}
        self._codes_of: dict[tuple[str, ...], int] = {}  # by the results of a region, in one program

    def add_trace(self, trace: Trace, title: str, phase: str) -> dict[str, Any]:
        """A trace for the page; its ops are positions in the table.

        Args:
            title: the pass that returned it.
            phase: "inference", "forward", "joint" or "backward".
        """
        printer = FunctionPrinter(LiteralPrinter(lambda body: body.name), lowered=False, comments=True)
        inputs = [[proxy.name, printer.annotator.annotate(proxy)] for proxy in trace.inputs]
        ops = [self._op(printer, op) for op in trace.symbols]
        return {
            "title": title,
            "phase": phase,
            "stage": trace.stage.value,
            "inputs": inputs,
            "ops": ops,
            "output": printer.literals.expression(trace.output),
            "deleted": {str(index): list(names) for index, names in trace.deletions.items()},
        }

    def add_codes(self, traces: Iterable[Trace]) -> None:
        """Add the generated code of the regions that traces call, before `add_trace`.

        A transform may wrap the call of a region in a later trace, so regions are identified by their results.
        """
        self._codes_of.clear()
        for op in (op for trace in traces for op in trace.symbols):
            call = region_call(op)
            generated = getattr(call, "generated_code", None)
            code = generated() if callable(generated) else None
            if code:
                self._codes_of[_names(op.outputs())] = self._position(self.codes, code, code)

    def _op(self, printer: FunctionPrinter, op: BoundSymbol) -> int:
        text = printer.line(op)
        plain = FunctionPrinter(printer.literals, lowered=False, comments=True)
        plain.annotator = Annotator()
        parts = [self._op(plain, part) for part in op.parts]
        outputs, inputs = _names(op.outputs()), _names(op.inputs())
        code = self._codes_of.get(outputs, -1) if op.symbol.executor is not None else -1
        executor = op.symbol.executor or ""
        row = [text, op.symbol.name, executor, self._location(op.location), outputs, inputs, parts, code]
        return self._position(self.ops, row, (*row[:6], tuple(parts), code))

    def _location(self, location: SourceLocation | None) -> int:
        if location is None:
            return -1
        text = linecache.getline(location.filename, location.line).strip()
        row = [location.filename, location.line, location.function, location.module, text]
        return self._position(self.locations, row, tuple(row))

    def _position(self, table: list[Any], row: Any, key: Any) -> int:
        position = self._known.setdefault((id(table), key), len(table))
        if position == len(table):
            table.append(row)
        return position


def _names(proxies: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([proxy.name for proxy in proxies]))
