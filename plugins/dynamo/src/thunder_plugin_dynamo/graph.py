"""A graph of Dynamo as a function that Thunder records."""

from __future__ import annotations

import inspect
import sys
import weakref
from dataclasses import replace
from types import FrameType, MethodType
from typing import Any

import torch

from thunder_core.ir.location import SourceLocation
from thunder_core.tracing.frames import forget_generated_lines, set_generated_lines
from thunder_frontend.record.module_calls import generate_code
from thunder_plugin_dynamo.higher_order import replace_calls
from thunder_plugin_dynamo.numbers_as_tensors import take_numbers
from thunder_plugin_dynamo.pytorch_internals import CompileContext
from thunder_plugin_dynamo.user_lines import lines_of_code, user_line

_CALLS = frozenset({"call_function", "call_method", "call_module"})


class Graph:
    """A graph of the backend.

    Attributes:
        module: the graph; Thunder records its calls.
        compile_id: Dynamo's ID of the compiled frame, as in its logs: ``"2/0"``.
        lines: the user's source lines in the graph, in order, without duplicates.
        operations: number of calls.
        numbers: positions of the inputs that are numbers, and that Dynamo passes as tensors.
        is_static: whether all sizes, strides and numbers are constants, which Dynamo checks before each call.
        refused: the reason why it runs eagerly; empty if it does not.
        end: the reason for the end of the graph, Dynamo's ``GraphCompileReason``; None if it is unknown.
    """

    def __init__(self, module: torch.fx.GraphModule, name: str | None = None) -> None:
        nodes = [node for node in module.graph.nodes if node.op in _CALLS]
        self.module = module
        self.compile_id = str(CompileContext.current_compile_id())
        located = [line for node in nodes if (line := user_line(node)) is not None]
        self.lines = tuple(dict.fromkeys(replace(line, module="") for line in located))
        self.operations = len(nodes)
        self.numbers = take_numbers(module)
        self.is_static = not self.numbers and _is_static(module)
        self.end = getattr(module, "compile_subgraph_reason", None)
        self.refused = ""
        where = f" of {self.lines[0].function}" if self.lines else ""
        self.__name__ = self.__qualname__ = f"{name + ', ' if name else ''}graph {self.compile_id}{where}"
        self._program = _called_program()
        replace_calls(module)
        _note_lines(module, self)

    def __call__(self, *args: Any) -> Any:
        """Run the graph with eager PyTorch."""
        return self.module.forward(*args)

    @property
    def program(self) -> Any:
        """The function or module that was passed to `torch.compile`; None if it no longer exists."""
        return self._program() if self._program is not None else None

    def place(self) -> str:
        """The graph, and its first and last source line."""
        if not self.lines:
            return self.__qualname__
        first, last = self.lines[0], self.lines[-1]
        if first.filename == last.filename and last.line > first.line:
            return f"{self.__qualname__} ({first.filename}:{first.line} to {last.line})"
        return f"{self.__qualname__} ({first.filename}:{first.line})"


def _is_static(module: torch.fx.GraphModule) -> bool:
    values = [node.meta.get("example_value") for node in module.graph.nodes if node.op == "placeholder"]
    return all(isinstance(value, torch.Tensor) and _has_constant_sizes(value) for value in values)


def _has_constant_sizes(value: torch.Tensor) -> bool:
    sizes: list[Any] = [*value.shape]
    if value.layout is torch.strided:
        sizes += [*value.stride(), value.storage_offset()]
    return not any(isinstance(size, torch.SymInt) for size in sizes)


def _note_lines(module: torch.fx.GraphModule, graph: Graph) -> None:
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            generate_code(part)
            filename = type(part).forward.__code__.co_filename
            lines: dict[int, SourceLocation] = lines_of_code(part)
            set_generated_lines(filename, lines)
            weakref.finalize(graph, forget_generated_lines, filename)


def _called_program() -> weakref.ref[Any] | None:
    """The function or module whose call Dynamo compiles, from the frame of its wrapper; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "compile_wrapper":
        frame = frame.f_back
    if frame is None:
        return None
    called = frame.f_locals.get("fn")
    return weakref.ref(owner_of(called)) if called is not None else None


def owner_of(called: Any) -> Any:
    """The module whose call or method something is; otherwise the function, without wrappers."""
    called = inspect.unwrap(called) if callable(called) else called
    return called.__self__ if isinstance(called, MethodType) else called
