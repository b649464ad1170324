"""Files of programs that are executable and editable."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from thunder_core.acquire.program_exceptions import folded
from thunder_core.errors import TraceError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.printer import PrintedTrace, render_trace
from thunder_core.ir.program import compile_source, compile_trace
from thunder_core.ir.proxy import OpaqueProxy, Proxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.symbols.checks import REQUIRED
from thunder_saving.reader import read_trace

__all__ = ["SavedProgram", "load_trace", "print_program", "save_trace"]


class SavedProgram:
    """A callable of the inputs that are not constants, by position or name; returns the result of the trace.

    It runs in the grad mode, inference mode and autocast state of the recording.

    Attributes:
        trace: the program.
        constants: the values of the other inputs, by name.
    """

    def __init__(self, trace: Trace, constants: Mapping[str, Any]) -> None:
        self.trace = trace
        self.constants = dict(constants)
        self._function = compile_trace(trace)

    @property
    def inputs(self) -> tuple[Proxy, ...]:
        """The inputs of a call, in order."""
        return tuple(proxy for proxy in self.trace.inputs if proxy.name not in self.constants)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Raises TypeError for missing or duplicate inputs."""
        names = [proxy.name for proxy in self.inputs]
        if len(args) > len(names):
            raise TypeError(f"{self.trace.name} takes {len(names)} inputs ({', '.join(names)}), not {len(args)}")
        given = dict(zip(names, args, strict=False))
        twice = [name for name in kwargs if name in given]
        if twice:
            raise TypeError(f"{self.trace.name} got {', '.join(twice)} twice")
        with _entered(self.trace.context):
            try:
                return self._function(**self.constants, **given, **kwargs)
            except Exception as error:
                error.__traceback__ = folded(error)
                raise

    def __repr__(self) -> str:
        return f"SavedProgram({self.trace.name}: {', '.join(proxy.name for proxy in self.inputs)})"


def _entered(context: Context) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(context.inference))
    stack.enter_context(torch.set_grad_enabled(context.grad_enabled))
    enabled = dict(context.autocast)
    for kind in sorted({"cpu", *enabled}):
        manager = torch.autocast(
            kind, dtype=enabled.get(kind), enabled=kind in enabled, cache_enabled=context.autocast_cache
        )
        stack.enter_context(manager)
    return stack


_LARGEST_LITERAL = 32
_LITERAL_DTYPES = frozenset({torch.bool, torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16})


DECODER = '''\
def decode(text: str):
    """A constant from its text; like the rest of this file it is code, so load only files that you trust."""
    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=False)
'''
"""The definition in files with encoded constants; it needs ``import base64`` and ``import io``."""


def print_constants(constants: Mapping[str, Any], literals: LiteralPrinter) -> list[str]:
    """The code that defines ``CONSTANTS``, a dict by input name. Raises TraceError if a value cannot be encoded."""
    values = {name: _literal(value, literals) or _encoded(name, value) for name, value in constants.items()}
    lines = ["CONSTANTS = {"]
    for name, text in values.items():
        lines += f"    {name!r}: {text},".split("\n")
    lines.append("}")
    if any(text.startswith("decode(") for text in values.values()):
        literals.modules |= {"base64", "io"}
        lines = [*DECODER.splitlines(), "", "", *lines]
    return lines


def is_encodable(value: Any) -> bool:
    """Whether ``value`` can be stored in a file."""
    try:
        _encode(value)
    except Exception:  # noqa: BLE001 - whatever pickling of the object raises
        return False
    return True


def _literal(value: Any, literals: LiteralPrinter) -> str:
    """A small plain tensor as a call of ``torch.tensor``; empty for other values."""
    plain = (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.dtype in _LITERAL_DTYPES
        and value.device.type == "cpu"
        and value.is_contiguous()
        and not value.requires_grad
        and 0 < value.numel() <= _LARGEST_LITERAL
    )
    return f"torch.tensor({literals.expression(value.tolist())}, dtype={value.dtype})" if plain else ""


def _encoded(name: str, value: Any) -> str:
    try:
        text = base64.b64encode(_encode(value)).decode()
    except Exception as error:
        raise TraceError(
            f"The constant {name!r}, a {type(value).__qualname__}, cannot be saved: {error}",
            advice=("define its class or function at the top level of a module, or make it an argument",),
        ) from error
    return 'decode("""\n' + "\n".join(textwrap.wrap(text, 116)) + '\n""")'


def _encode(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


_SELF_CHECK = """\
if __name__ == "__main__":
    from thunder_saving.self_check import main

    main(__file__)
"""


def save_trace(trace: Trace, path: str | Path, constants: Mapping[str, Any] | None = None) -> None:
    """Write ``trace`` to ``path`` as a Python module.

    Importing the module defines the function ``trace.name`` and, if there are constants, ``program``, which takes only
    the other inputs. Running it as a script tests it on random inputs. `load_trace` reads it.

    Args:
        trace: the program.
        path: the file.
        constants: values of inputs that are the same in every call, by name; they are stored in the file. An object
            that cannot be stored remains an input.

    Raises:
        TraceError: the program calls functions that cannot be imported.
    """
    Path(path).write_text(print_program(trace, constants or {}), encoding="utf-8")


def for_one_size(trace: Trace, defined: Collection[str]) -> Trace:
    """The program for the sizes of the recording.

    Args:
        trace: the program.
        defined: the symbols that its operations define, and that it returns after its results.
    """
    if not defined:
        return trace.with_constant_sizes() if trace.sizes else trace

    def names(value: Any) -> set[str]:
        return {proxy.name for proxy in iterate_proxies(value)}

    def without_names(bound: BoundSymbol) -> BoundSymbol:
        defines = Tag.GUESS in bound.symbol.tags and names(bound.args[-1]) & set(defined)
        return replace(bound, args=bound.args[:-1]) if defines else bound

    constant = trace.with_constant_sizes()
    lines = [without_names(bound) for bound in constant.symbols if names(bound.output).isdisjoint(defined)]
    output = tuple([proxy for proxy in constant.output if names(proxy).isdisjoint(defined)])
    return replace(constant, symbols=tuple(lines), output=output)


def _on_its_own(trace: Trace) -> Trace:
    """The trace with errors in place of checks that dispatch to another program."""

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
    stored = {
        name: value
        for name, value in constants.items()
        if name in kinds and (kinds[name] is not OpaqueProxy or is_encodable(value))
    }
    parts = [printed.source]
    if stored:
        literals = LiteralPrinter()
        lines = print_constants(stored, literals)
        parts[0] = _with_imports(printed.source, literals)
        parts += ["\n".join([*lines, ""]), _program(trace, stored)]
    return "\n\n".join([*parts, _SELF_CHECK])


def load_trace(path: str | Path) -> SavedProgram:
    """Read a file that `save_trace` wrote, edited or not.

    A file with constants is executed to load them, and modules in the program are imported.

    Raises:
        TraceSyntaxError: the file is not a valid program; the message has the line.
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
    """A function of the inputs that are not constants."""
    free = [proxy.name for proxy in trace.inputs if proxy.name not in constants]
    given = [f"CONSTANTS[{proxy.name!r}]" if proxy.name in constants else proxy.name for proxy in trace.inputs]
    return (
        f"def program({', '.join(free)}):\n"
        f'    """`{trace.name}` with its constants."""\n'
        f"    return {trace.name}({', '.join(given)})\n"
    )


def _with_imports(source: str, literals: LiteralPrinter) -> str:
    """``source`` with the additional imports that constants need."""
    wanted = [f"import {module}" for module in sorted(literals.modules - {"torch"})]
    wanted += [f"from math import {name}" for name in sorted(literals.constants)]
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
