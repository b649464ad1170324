"""One trace as one Python function."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from thunder_core.ir.annotation import Annotator
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, describe_context, with_items
from thunder_core.ir.effects import WAITS
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.location import SourceLocation, one_line
from thunder_core.ir.proxy import PROXY_TYPES, OpaqueProxy
from thunder_core.ir.symbol import CallStyle
from thunder_core.ir.tree import iterate_leaves, iterate_proxies

if TYPE_CHECKING:
    from thunder_core.ir.trace import Trace


def is_target(output: Any) -> bool:
    """Whether ``output`` can be taken apart by an assignment: sequences of proxies, and of literals to ignore."""
    if isinstance(output, tuple | list):
        return all(is_target(item) for item in output)
    return not isinstance(output, dict | slice)


def outer_target(output: Any) -> str:
    """The target without the parentheses that Python does not need."""
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


NO_LOCATION = "# no user line"
CHECK = "check_result"
CHECKED = "checks_passed"
LEAVES = "thunder_core.ir.tree.leaves"
_BOX: Final = OpaqueProxy("_", "list")


class FunctionPrinter:
    """Prints one function, line by line."""

    def __init__(self, literals: LiteralPrinter, *, lowered: bool, comments: bool) -> None:
        self.literals = literals
        self.lowered = lowered
        self.comments = comments
        self.lines: list[str] = []
        self.locations: list[tuple[int, SourceLocation]] = []
        self.claimed: list[tuple[int, str, BoundSymbol]] = []  # where executors' lines are, and their indentation
        self.annotator = Annotator()
        self.sizes: tuple[str, ...] = ()

    def print_function(
        self, trace: Trace, name: str, *, boxed: bool = False, sizes: tuple[str, ...] | None = None
    ) -> None:
        """Append the lines of ``trace`` as the function ``name``.

        Args:
            boxed: inputs and sizes come in a list to be emptied.
            sizes: the symbols that the function takes behind its inputs; by default those that it has.
        """
        self.trace = trace
        self.sizes = trace.sizes if sizes is None else sizes
        symbols = trace.symbols
        if boxed and not self.sizes and _hands_on_its_inputs(trace):
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
            if bound.context is not context and bound.context != context:
                context = bound.context
                indent = self._enter(context, trace.context)
            if bound.location is not location and bound.location != location:
                location = bound.location
                if self.comments:
                    self.lines.append(f"{indent}{_location_comment(location)}")
            if location is not None:
                self.locations.append((len(self.lines), location))
            if bound.symbol.executor is not None and bound.output is not None:
                self.claimed.append((len(self.lines), indent, bound))
            self.lines.append(indent + self.line(bound))
            if self.lowered:
                self._parts(bound.parts, indent)
            if index in deletions:
                self._delete(deletions[index], indent)
        self.lines.append(f"    return {self.literals.spell(trace.output)}")

    def header(self) -> list[str]:
        """Comments with what the code of the function does not say about its trace."""
        trace, storages = self.trace, self.annotator.storages()
        lines = [
            f"# trace: {trace.name}",
            f"# stage: {trace.stage.value}",
            f"# provenance: {trace.provenance}",
            f"# context: {describe_context(trace.context)}",
        ]
        return [*lines, f"# memories: {storages}"] if storages else lines

    def line(self, bound: BoundSymbol, check: int | None = None) -> str:
        """One bound symbol as one line; with ``check``, that number and the result are given to a check first."""
        text = call_text(self.literals, bound)
        if check is not None:
            text = f"{CHECK}({check}, {text})"
        output = bound.output
        if output is None:
            return f"{text}{self._comment(bound)}" if self.comments else text
        if isinstance(output, PROXY_TYPES):
            text = f"{output.name} = {text}"
        elif is_target(output):
            text = f"{outer_target(output)} = {text}"
        else:
            self.literals.modules.add("thunder_core.ir.tree")
            text = f"{outer_target(tuple(iterate_leaves(output)))} = {LEAVES}({text})"
        return f"{text}{self._comment(bound)}" if self.comments else text

    def _comment(self, bound: BoundSymbol) -> str:
        """The types of the outputs, and the effects that the call does not show by itself."""
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

    def _enter(self, context: Context | None, ambient: Context) -> str:
        if context is None:
            return "    "
        self.lines.append(f"    with {', '.join(with_items(context, ambient))}:")
        return "        "

    def _delete(self, names: tuple[str, ...], indent: str) -> None:
        if names:
            self.lines.append(f"{indent}del {', '.join(names)}")

    def _parts(self, parts: tuple[BoundSymbol, ...], indent: str) -> None:
        if parts:
            printer = FunctionPrinter(self.literals, lowered=False, comments=False)
            self.lines.extend(f"{indent}#   {printer.line(part)}" for part in parts)


def call_text(literals: LiteralPrinter, bound: BoundSymbol) -> str:
    """The call of ``bound`` as an expression, without its outputs."""
    symbol, args = bound.symbol, bound.args
    if symbol.style is CallStyle.FUNCTION:
        return f"{literals.callee(symbol)}({literals.arguments(args, bound.kwargs)})"
    receiver = literals.spell(args[0])
    if not isinstance(args[0], PROXY_TYPES):
        receiver = f"({receiver})"
    if symbol.style is CallStyle.METHOD:
        return f"{receiver}.{symbol.name}({literals.arguments(args[1:], bound.kwargs)})"
    if symbol.style is CallStyle.GETITEM:
        return f"{receiver}[{literals.index(args[1])}]"
    return f"{receiver}.{symbol.name}"


def _hands_on_its_inputs(trace: Trace) -> bool:
    """Whether the program is one call that takes a list of all inputs: it can then empty the list of the caller."""
    if len(trace.symbols) != 1 or trace.symbols[0].kwargs or trace.symbols[0].args != (list(trace.inputs),):
        return False
    names = {proxy.name for proxy in trace.inputs}
    return not any(proxy.name in names for proxy in iterate_proxies(trace.output))


def _effects(bound: BoundSymbol) -> list[str]:
    """Effects in words; an in-place method says by itself that it writes its receiver."""
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
