"""Print traces as Python modules.

`render_trace` prints a module, `FunctionPrinter` one function of it, and `thunder_core.ir.literals` the expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from thunder_core.ir.annotation import Annotator
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, describe_context, with_items
from thunder_core.ir.effects import WAITS
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.location import SourceLocation, one_line
from thunder_core.ir.profiler_ranges import RECORD_FUNCTIONS, ProfilerRange, RangeBlocks
from thunder_core.ir.proxy import PROXY_TYPES, OpaqueProxy
from thunder_core.ir.symbol import CallStyle, Tag
from thunder_core.ir.tree import iterate_leaves, iterate_proxies

if TYPE_CHECKING:
    from thunder_core.ir.trace import Trace

NO_LOCATION: Final = "# no user line"
"""The comment before ops without a source location."""
CHECK: Final = "check_result"
CHECKED: Final = "checks_passed"
"""Functions that checked modules call: with each result, and at the end."""
LEAVES: Final = "thunder_core.ir.tree.leaves"
"""The function whose result is assigned if an assignment cannot unpack the output of a call."""
_BOX: Final = OpaqueProxy("_", "list")


@dataclass(frozen=True, slots=True)
class PrintedTrace:
    """A printed module.

    Attributes:
        source: its text.
        locations: the user's source location for each 1-based line of the text that is a call.
        local_targets: the callables to which names without an import path must be bound.
        checked: the same text, line by line, with a check of the result of each call claimed by an executor, and a call
            of ``checks_passed`` at the end. Printed without comments; empty if there are no such calls.
        claimed: the claimed ops, by the number that their check is called with.
    """

    source: str
    locations: dict[int, SourceLocation]
    local_targets: dict[str, Callable[..., Any]]
    checked: str
    claimed: dict[int, BoundSymbol]


def print_trace(trace: Trace, *, lowered: bool = False, comments: bool = True) -> str:
    """``trace`` as the text of a self-contained Python module that defines the function ``trace.name``.

    Args:
        lowered: print the ops that each op was lowered to, as comments.
        comments: print the header, source locations and types; without them the module can be run, not read back.
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
    """Like `print_trace`, with source locations and checked calls as data.

    Args:
        boxed: the function takes its inputs and sizes in one list, which it empties.
        sizes: size symbols that the function takes after its inputs; by default `Trace.sizes`.
    """
    return _ModulePrinter(lowered, comments).render(trace, boxed, sizes)


class _ModulePrinter:
    """Prints the functions of one module: bodies of higher-order symbols first, the trace itself last."""

    def __init__(self, lowered: bool, comments: bool) -> None:
        self.lowered = lowered
        self.comments = comments
        self.literals = LiteralPrinter(self._body_name, self._value_names, exact=not comments)
        self.functions: list[FunctionPrinter] = []
        self.printing: list[FunctionPrinter] = []
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
        # a reference to its methods would keep the printed text alive until the next collection of reference cycles
        self.literals.body_name, self.literals.taken = None, frozenset
        local = self.literals.local_targets
        return PrintedTrace("\n".join(lines), locations, local, _with_checks(lines, checked), claimed)

    def _function(self, trace: Trace, name: str, boxed: bool = False, sizes: tuple[str, ...] | None = None) -> None:
        function = FunctionPrinter(self.literals, lowered=self.lowered, comments=self.comments)
        if self.printing:
            function.outside = self.printing[-1].outside.union(self.printing[-1].blocks.current)
        self.value_names |= trace.names()
        self.printing.append(function)
        function.print_function(trace, name, boxed=boxed, sizes=sizes)
        self.functions.append(self.printing.pop())

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


class FunctionPrinter:
    """Prints one function, line by line."""

    def __init__(self, literals: LiteralPrinter, *, lowered: bool, comments: bool) -> None:
        self.literals = literals
        self.lowered = lowered
        self.comments = comments
        self.lines: list[str] = []
        self.locations: list[tuple[int, SourceLocation]] = []
        self.claimed: list[tuple[int, str, BoundSymbol]] = []  # line number, indentation and op of each claimed call
        self.blocks = RangeBlocks()
        self.outside: frozenset[ProfilerRange] = frozenset()  # the ranges of the op that calls a body
        self.annotator = Annotator()
        self.sizes: tuple[str, ...] = ()

    def print_function(self, trace: Trace, name: str, *, boxed: bool, sizes: tuple[str, ...] | None) -> None:
        """Append the text of ``trace`` as the function ``name``.

        Args:
            boxed: the function takes its inputs and sizes in one list, which it empties.
            sizes: size symbols that the function takes after its inputs; None for `Trace.sizes`.
        """
        self.trace = trace
        self.sizes = trace.sizes if sizes is None else sizes
        symbols = trace.symbols
        if boxed and not self.sizes and _is_one_boxed_call(trace):
            self.lines.append(f"def {name}({_BOX.name}):")
            symbols = (replace(symbols[0], args=(_BOX,)),)
        elif boxed:
            self._boxed_signature(trace, name)
        else:
            self._signature(trace, name)
        deletions = trace.deletions
        self._delete(deletions.get(-1, ()), "    ")
        context: Context | None = None
        location: SourceLocation | None = None
        indent = "    "
        for index, bound in enumerate(symbols):
            entered = self._enter_ranges(bound)
            if entered or (bound.context is not context and bound.context != context):
                context = bound.context
                indent = self._enter(context, trace.context)
            if bound.location is not location and bound.location != location:
                location = bound.location
                if self.comments:
                    self.lines.append(f"{indent}{_location_comment(location)}")
            if location is not None:
                self.locations.append((len(self.lines), location))
            symbol = bound.symbol
            if symbol.executor is not None and bound.output is not None and Tag.RUNS_PARTS not in symbol.tags:
                self.claimed.append((len(self.lines), indent, bound))
            self.lines.append(indent + self.line(bound))
            if self.lowered or (self.comments and Tag.RUNS_PARTS in symbol.tags):
                self._parts(bound.parts, indent)
            if index in deletions:
                self._delete(deletions[index], indent)
        self.lines.append(f"    return {self.literals.expression(trace.output)}")

    def header(self) -> list[str]:
        """Comments with the properties of the trace that the function's code does not show."""
        trace, storages = self.trace, self.annotator.storages()
        lines = [
            f"# trace: {trace.name}",
            f"# stage: {trace.stage.value}",
            f"# provenance: {trace.provenance}",
            f"# context: {describe_context(trace.context)}",
        ]
        return [*lines, f"# storages: {storages}"] if storages else lines

    def line(self, bound: BoundSymbol, check: int | None = None) -> str:
        """One op as one line of Python; with ``check``, its result passes through ``check_result(check, ...)``."""
        text = _call_text(self.literals, bound)
        if check is not None:
            text = f"{CHECK}({check}, {text})"
        output = bound.output
        if output is None:
            return f"{text}{self._comment(bound)}" if self.comments else text
        if isinstance(output, PROXY_TYPES):
            text = f"{output.name} = {text}"
        elif is_target(output):
            text = f"{_outer_target(output)} = {text}"
        else:
            self.literals.modules.add("thunder_core.ir.tree")
            text = f"{_outer_target(tuple(iterate_leaves(output)))} = {LEAVES}({text})"
        return f"{text}{self._comment(bound)}" if self.comments else text

    def _comment(self, bound: BoundSymbol) -> str:
        """The comment after a call: types of its outputs, and effects that the call does not show."""
        text = ", ".join([self.annotator.annotate(proxy) for proxy in bound.outputs()])
        if not bound.effects.pure:
            text = "; ".join([text, *_effects(bound)] if text else _effects(bound))
        return f"  # {one_line(text)}" if text else ""

    def _signature(self, trace: Trace, name: str) -> None:
        if not self.comments or not (trace.inputs or self.sizes):
            names = [*[proxy.name for proxy in trace.inputs], *self.sizes]
            self.lines.append(f"def {name}({', '.join(names)}):")
            return
        self.lines.append(f"def {name}(")
        self.lines.extend(f'    {proxy.name}: "{self.annotator.annotate(proxy)}",' for proxy in trace.inputs)
        self.lines.extend(f'    {size}: "int",' for size in self.sizes)
        self.lines.append("):")

    def _boxed_signature(self, trace: Trace, name: str) -> None:
        self.lines.append(f"def {name}({_BOX.name}):")
        if trace.inputs or self.sizes:
            names = "".join([f"{name}, " for name in (*[proxy.name for proxy in trace.inputs], *self.sizes)])
            self.lines += [f"    {names}= {_BOX.name}", f"    {_BOX.name}.clear()"]

    def _enter_ranges(self, bound: BoundSymbol) -> bool:
        """Enter the ranges of the profiler that an op is in; returns whether they changed. Others have no location."""
        if bound.location is None or not (bound.location.ranges or self.blocks.current):
            return False
        ranges = tuple([each for each in bound.location.ranges if each not in self.outside])
        if ranges == self.blocks.current:
            return False
        lines = self.blocks.enter(ranges, self.literals.expression)
        self.literals.modules.update(["thunder_core.ir.profiler_ranges" for line in lines if RECORD_FUNCTIONS in line])
        self.lines += [f"    {line}" for line in lines]
        return True

    def _enter(self, context: Context | None, ambient: Context) -> str:
        indent = f"    {self.blocks.indentation}"
        if context is None:
            return indent
        self.lines.append(f"{indent}with {', '.join(with_items(context, ambient))}:")
        return f"{indent}    "

    def _delete(self, names: tuple[str, ...], indent: str) -> None:
        if names:
            self.lines.append(f"{indent}del {', '.join(names)}")

    def _parts(self, parts: tuple[BoundSymbol, ...], indent: str) -> None:
        if parts:
            printer = FunctionPrinter(self.literals, lowered=False, comments=False)
            self.lines.extend(f"{indent}#   {printer.line(part)}" for part in parts)


def _call_text(literals: LiteralPrinter, bound: BoundSymbol) -> str:
    """The call of ``bound`` as an expression, without its outputs."""
    symbol, args = bound.symbol, bound.args
    if symbol.style is CallStyle.FUNCTION:
        return f"{literals.callee(symbol)}({literals.arguments(args, bound.kwargs)})"
    receiver = literals.expression(args[0])
    if not isinstance(args[0], PROXY_TYPES):
        receiver = f"({receiver})"
    if symbol.style is CallStyle.METHOD:
        return f"{receiver}.{symbol.name}({literals.arguments(args[1:], bound.kwargs)})"
    if symbol.style is CallStyle.GETITEM:
        return f"{receiver}[{literals.index(args[1])}]"
    return f"{receiver}.{symbol.name}"


def _is_one_boxed_call(trace: Trace) -> bool:
    """Whether the program is a single call that takes all inputs in a list, so that the callee can empty that list."""
    if len(trace.symbols) != 1 or trace.symbols[0].kwargs or trace.symbols[0].args != (list(trace.inputs),):
        return False
    names = {proxy.name for proxy in trace.inputs}
    return not any(proxy.name in names for proxy in iterate_proxies(trace.output))


def _effects(bound: BoundSymbol) -> list[str]:
    """Effects in words, except the write to its receiver by an in-place method, which its name shows."""
    effects = bound.effects
    words = []
    itself = bound.symbol.style is CallStyle.METHOD and effects.mutates == (getattr(bound.args[0], "name", ""),)
    if effects.mutates and not itself:
        words.append(f"writes {', '.join(effects.mutates)}")
    if effects.random:
        words.append("random")
    if effects.external:
        words.append("external")
    words += ["waits" if channel == WAITS else f"group {channel!r}" for channel in effects.channels]
    return words


def _location_comment(location: SourceLocation | None) -> str:
    return NO_LOCATION if location is None else f"# {one_line(location.describe())}"


def is_target(output: Any) -> bool:
    """Whether an assignment can unpack ``output``: nested sequences of proxies, and of literals, which become ``_``."""
    if isinstance(output, tuple | list):
        return all(is_target(item) for item in output)
    return not isinstance(output, dict | slice)


def _outer_target(output: Any) -> str:
    """The assignment target for ``output``, without outer parentheses."""
    text = _target(output)
    return text[1:-1] if isinstance(output, tuple) and len(output) > 1 else text


def _target(output: Any) -> str:
    if isinstance(output, PROXY_TYPES):
        return output.name
    if not isinstance(output, tuple | list):
        return "_"
    items = ", ".join([_target(item) for item in output])
    if isinstance(output, list):
        return f"[{items}]"
    return f"({items},)" if len(output) == 1 else f"({items})"
