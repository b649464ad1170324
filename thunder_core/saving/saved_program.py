"""A program that was read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch

from thunder_core.acquire.tracebacks import folded
from thunder_core.ir.context import Context
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.trace import Trace


class SavedProgram:
    """A callable of the inputs that are no constants, by position or by name; returns what the trace returns.

    It runs under the grad mode, inference mode and autocast that it was recorded under.

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
        """What a call must give, in order."""
        return tuple(proxy for proxy in self.trace.inputs if proxy.name not in self.constants)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Raises TypeError when inputs are missing, or given twice."""
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
