"""Programs as files that run by themselves and can be edited."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from thunder_core.errors import TraceError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.literals import Speller
from thunder_core.ir.printer import PrintedTrace, render_trace
from thunder_core.ir.program import compile_source
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.saving.constants import is_encodable, print_constants
from thunder_core.saving.reader import read_trace
from thunder_core.saving.saved_program import SavedProgram
from thunder_core.symbols.checks import REQUIRED

_SELF_CHECK = """\
if __name__ == "__main__":
    from thunder_core.saving.self_check import main

    main(__file__)
"""


def save_trace(trace: Trace, path: str | Path, constants: Mapping[str, Any] | None = None) -> None:
    """Write ``trace`` to ``path`` as a Python module.

    Importing the module defines the function ``trace.name`` and, where there are constants, ``program``, which takes
    the other inputs alone. Running it as a script checks it on random inputs. `load_trace` reads it back.

    Args:
        constants: values of inputs that are the same in every run, by name; they become part of the file. An object
            that cannot be stored stays an input.

    Raises:
        TraceError: the program calls functions that cannot be imported.
    """
    Path(path).write_text(print_program(trace, constants or {}), encoding="utf-8")


def for_one_size(trace: Trace, defined: Collection[str]) -> Trace:
    """A program for the sizes that it was recorded with.

    Args:
        defined: the symbols that its lines define, and that it returns behind its results.
    """
    if not defined:
        return trace.with_constant_sizes() if trace.sizes else trace

    def names(value: Any) -> set[str]:
        return {proxy.name for proxy in iterate_proxies(value)}

    def without_names(bound: BoundSymbol) -> BoundSymbol:
        told = Tag.GUESS in bound.symbol.tags and names(bound.args[-1]) & set(defined)
        return replace(bound, args=bound.args[:-1]) if told else bound

    constant = trace.with_constant_sizes()
    lines = [without_names(bound) for bound in constant.symbols if names(bound.output).isdisjoint(defined)]
    output = tuple([proxy for proxy in constant.output if names(proxy).isdisjoint(defined)])
    return replace(constant, symbols=tuple(lines), output=output)


def _on_its_own(trace: Trace) -> Trace:
    """The trace with errors in the place of checks that have another program run."""

    def required(bound: BoundSymbol) -> BoundSymbol:
        if Tag.GUESS in bound.symbol.tags:
            return replace(bound, symbol=REQUIRED[bound.symbol])
        if Tag.HIGHER_ORDER not in bound.symbol.tags:
            return bound
        args = map_leaves(lambda leaf: _on_its_own(leaf) if isinstance(leaf, Trace) else leaf, bound.args)
        return replace(bound, args=args)

    return replace(trace, symbols=tuple(map(required, trace.symbols)))


def print_program(trace: Trace, constants: Mapping[str, Any]) -> str:
    """The text that `save_trace` writes."""
    trace = _on_its_own(trace)
    printed = render_trace(trace)
    _check_importable(trace, printed)
    kinds = {proxy.name: type(proxy) for proxy in trace.inputs}
    kept = {
        name: value
        for name, value in constants.items()
        if name in kinds and (kinds[name] is not OpaqueProxy or is_encodable(value))
    }
    parts = [printed.source]
    if kept:
        speller = Speller()
        lines = print_constants(kept, speller)
        parts[0] = _with_imports(printed.source, speller)
        parts += ["\n".join([*lines, ""]), _program(trace, kept)]
    return "\n\n".join([*parts, _SELF_CHECK])


def load_trace(path: str | Path) -> SavedProgram:
    """Read a file that `save_trace` wrote, edited or not.

    A file with constants is executed to get them, and modules that the program names are imported.

    Raises:
        TraceSyntaxError: the file is not a program; the message names the line.
    """
    source = Path(path).read_text(encoding="utf-8")
    trace = read_trace(source, filename=str(path))
    constants: dict[str, Any] = {}
    if "\nCONSTANTS = {" in source:
        namespace: dict[str, Any] = {"__name__": Path(path).stem}
        compile_source(source, trace.name, namespace, title=str(path))
        constants = namespace["CONSTANTS"]
    return SavedProgram(trace, constants)


def _program(trace: Trace, constants: Mapping[str, Any]) -> str:
    """A function of the inputs that are no constants."""
    free = [proxy.name for proxy in trace.inputs if proxy.name not in constants]
    given = [f"CONSTANTS[{proxy.name!r}]" if proxy.name in constants else proxy.name for proxy in trace.inputs]
    return (
        f"def program({', '.join(free)}):\n"
        f'    """`{trace.name}` with its constants."""\n'
        f"    return {trace.name}({', '.join(given)})\n"
    )


def _with_imports(source: str, speller: Speller) -> str:
    """``source`` with the further imports that constants need."""
    wanted = [f"import {module}" for module in sorted(speller.modules - {"torch"})]
    wanted += [f"from math import {name}" for name in sorted(speller.constants)]
    return source.replace("import torch\n", "\n".join([*wanted, "import torch\n"]), 1)


def _check_importable(trace: Trace, printed: PrintedTrace) -> None:
    local = ", ".join(printed.local_targets)
    if not local and "\nimport __main__\n" not in printed.source:
        return
    targets = set(map(id, printed.local_targets.values()))
    lines = [bound for bound in trace.symbols if id(bound.symbol.target) in targets]
    raise TraceError(
        f"The program calls {local or 'functions of the module __main__'}, which a file cannot import",
        location=lines[0].location if lines else None,
        advice=("define the function or class at the top level of an importable module",),
    )


__all__ = ["SavedProgram", "load_trace", "print_program", "save_trace"]
