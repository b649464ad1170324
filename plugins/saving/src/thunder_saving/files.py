"""Files of programs that are executable and editable."""

from __future__ import annotations

import ast
import base64
import io
import os
import stat
import textwrap
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from thunder_core.errors import TraceError, TraceSyntaxError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.printer import PrintedTrace, render_trace
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import OpaqueProxy, Proxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.symbols.checks import REQUIRED
from thunder_core.tracing.tracebacks import folded
from thunder_saving.reader import errors_of, read_module
from thunder_saving.verified_source import dotted

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
    """A constant from its text: tensors, and containers of them."""
    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
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
    except Exception:  # noqa: BLE001 - whatever pickling of the object raises, or reading it back
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
            advice=("make it an argument: files store tensors, numbers, text, and containers of them",),
        ) from error
    return 'decode("""\n' + "\n".join(textwrap.wrap(text, 116)) + '\n""")'


def _encode(value: Any) -> bytes:
    """The bytes of a value. Raises if they cannot be read without running code that they name."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    _decode(buffer.getvalue())
    return buffer.getvalue()


def _decode(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


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


def load_trace(path: str | Path, functions: Mapping[str, Any] | None = None) -> SavedProgram:
    """Read a file that `save_trace` wrote, edited or not.

    The file is parsed and not executed. It may name PyTorch's operators, and the symbols of Thunder and of installed
    plugins. So it may come from others, but read it before you run the program: it computes what it says.

    Args:
        path: the file.
        functions: functions and classes of your own that the file may name too: ``{"module.function": function}``.

    Raises:
        TraceSyntaxError: the file is not a valid program, or it has a name that is not allowed; the message has the
            line.
        OSError: the file cannot be opened.
    """
    filename = str(path)
    with errors_of(filename, keep=OSError):
        source = _content(path).decode()
        trace, dictionary = read_module(source, filename, functions or {})
        constants = {} if dictionary is None else _constants(trace, dictionary, filename)
        return SavedProgram(trace, constants)


def _content(path: str | Path) -> bytes:
    """The content of a regular file; a FIFO does not block."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TraceSyntaxError(f"{path}: it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _constants(trace: Trace, dictionary: ast.Dict, filename: str) -> dict[str, Any]:
    """The constants that `print_constants` wrote. Raises TraceSyntaxError for other expressions."""
    inputs = {proxy.name for proxy in trace.inputs}
    constants: dict[str, Any] = {}
    for key, node in zip(dictionary.keys, dictionary.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) else None
        if name not in inputs:
            raise TraceSyntaxError(f"{filename}:{node.lineno}: the constant {name!r} is not an input of {trace.name}")
        value = _constant(node)
        if value is _NONE:
            raise TraceSyntaxError(f"{filename}:{node.lineno}: {name!r} is not a call of torch.tensor or decode")
        constants[name] = value
    return constants


_NONE = object()
_SPECIAL_FLOATS = {"inf": float("inf"), "nan": float("nan")}


def _constant(node: ast.expr) -> Any:
    """The value of an expression that `print_constants` wrote; `_NONE` for other expressions."""
    match node:
        case ast.Call(func=ast.Name(id="decode"), args=[ast.Constant(value=str(text))], keywords=[]):
            return _decode(base64.b64decode(text))
        case ast.Call(args=[items], keywords=[ast.keyword(arg="dtype", value=kind)]):
            dtype = {f"torch.{name}": value for name, value in vars(torch).items()}.get(dotted(kind) or "")
            if dotted(node.func) == "torch.tensor" and isinstance(dtype, torch.dtype):
                return torch.tensor(_numbers(items), dtype=dtype)
    return _NONE


def _numbers(node: ast.expr) -> Any:
    """Nested lists of numbers."""
    match node:
        case ast.List(elts=items):
            return [_numbers(item) for item in items]
        case ast.Name(id=name) if name in _SPECIAL_FLOATS:
            return _SPECIAL_FLOATS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_numbers(operand)
        case ast.Constant(value=bool() | int() | float()):
            return node.value
    raise ValueError(f"{ast.unparse(node)} is not a number")


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
