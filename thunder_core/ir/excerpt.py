"""The lines of a trace around one of them, for error messages. Works on malformed traces too."""

from __future__ import annotations

from thunder_core.errors import TraceError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.function_printer import FunctionPrinter
from thunder_core.ir.literals import Speller
from thunder_core.ir.trace import Trace

_AROUND = 5


def excerpt(trace: Trace, index: int) -> str:
    """Up to ten lines around line ``index``, which is marked.

    -1 is the signature, ``len(trace.symbols)`` the return.
    """
    printer = FunctionPrinter(Speller(lambda body: body.name), lowered=False, comments=True)
    lines = []
    for number in range(max(-1, index - _AROUND), min(len(trace.symbols), index + _AROUND) + 1):
        marker = "-->" if number == index else "   "
        lines.append(f"{marker} {_line(printer, trace, number)}")
    return "\n".join(lines)


def _line(printer: FunctionPrinter, trace: Trace, number: int) -> str:
    if number == -1:
        return f"def {trace.name}({', '.join(str(proxy.name) for proxy in trace.inputs)}):"
    if number == len(trace.symbols):
        return f"    return {_returned(printer, trace)}"
    return f"    {_call(printer, trace.symbols[number])}"


def _call(printer: FunctionPrinter, bound: BoundSymbol) -> str:
    try:
        return printer.line(bound)
    except (TraceError, AttributeError, TypeError, IndexError) as error:
        return f"<a line of {getattr(bound, 'symbol', bound)!r} that cannot be printed: {error}>"


def _returned(printer: FunctionPrinter, trace: Trace) -> str:
    try:
        return printer.speller.spell(trace.output)
    except TraceError as error:
        return f"<an output that cannot be printed: {error.problem}>"
