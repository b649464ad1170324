"""Runs of programs that call Python functions of the user as eager does, whose reads are not guarded (`Tag.UNGUARDED`).

Such a function may change what the program reads. After each call its op compares what it knows of the function, and
asks `Run.change` whether the program is still valid; if not, it raises `thunder_core.errors.Diverged`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder_core.checks.global_state import GlobalState
from thunder_core.checks.guard import CallShape, Guard
from thunder_core.checks.prologue import build_prologue
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import version_of
from thunder_core.tracing.this_thread import this_thread

RunFunction = Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]


class Run:
    """One run of such a program.

    Attributes:
        calls: what the ops keep of the calls so far.
    """

    def __init__(self, inputs: tuple[Any, ...], why_not: Callable[[], str | None]) -> None:
        self.calls: list[Any] = []
        self._tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        self._why_not = why_not

    def versions(self, arguments: Sequence[torch.Tensor]) -> list[int]:
        """The versions of the program's inputs and of the arguments of a call, for `change`."""
        return [version_of(tensor) for tensor in (*self._tensors, *arguments) if not tensor.is_inference()]

    def change(self, arguments: Sequence[torch.Tensor], before: list[int]) -> str | None:
        """How a call has changed what the program reads; None if it has not.

        Args:
            before: the `versions` before the call.
        """
        if self.versions(arguments) != before:
            return "writes to a tensor of the program"
        change = self._why_not()
        return None if change is None else f"changes what the program reads ({change})"


def has_unguarded(trace: Trace) -> bool:
    """Whether a program has ops that call functions of the user whose reads are not guarded."""
    return any(Tag.UNGUARDED in bound.symbol.tags for bound in trace.symbols)


def with_checks(run: RunFunction, guards: Sequence[Guard], state: GlobalState, shape: CallShape) -> RunFunction:
    """A function that calls ``run`` while `this_thread.run` is a `Run`.

    Args:
        guards: those of the program's reads.
        state, shape: the modes and the arguments of the recorded call.
    """
    prologue = build_prologue(guards, (), state=state, shape=shape, modes=False)

    def call(inputs: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def why_not() -> str | None:
            return None if prologue.function(args, kwargs) is not None else prologue.violation(args, kwargs)

        outer, this_thread.run = this_thread.run, Run(inputs, why_not)
        try:
            return run(inputs, args, kwargs)
        finally:
            this_thread.run = outer

    return call
