"""Runs of programs that call Python functions of the user as eager does, whose reads are not guarded (`Tag.UNGUARDED`).

Such a function may change what the program reads. After each call its op asks `Run.change` whether it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder_core.checks.prologue import Prologue
from thunder_core.checks.source import Args, Kwargs
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

    def __init__(
        self, inputs: tuple[Any, ...], names: Sequence[str], prologue: Prologue, args: Args, kwargs: Kwargs
    ) -> None:
        self.calls: list[Any] = []
        self._inputs, self._names = inputs, names
        self._tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        self._prologue, self._args, self._kwargs = prologue, args, kwargs

    def versions(self, arguments: Sequence[torch.Tensor]) -> list[int]:
        """The versions of the program's inputs and of the arguments of a call, for `change`."""
        return [version_of(tensor) for tensor in (*self._tensors, *arguments) if not tensor.is_inference()]

    def change(self, arguments: Sequence[torch.Tensor], before: list[int]) -> str | None:
        """How a call has changed what the program reads; None if it has not.

        Args:
            before: the `versions` before the call.
        """
        if self.versions(arguments) != before:
            return "writes to a tensor that the program reads"
        now = self._prologue.function(self._args, self._kwargs)
        if now is not None and all(map(_is_same, now, self._inputs)):
            return None
        return f"changes what the program reads ({self.failing()[0]})"

    def failing(self) -> list[str]:
        """What has changed of what the program reads since it has begun, and the versions of its inputs, as texts."""
        failing = self._prologue.violations(self._args, self._kwargs)
        now = self._prologue.function(self._args, self._kwargs) or self._inputs
        names = zip(self._names, now, self._inputs, strict=True)
        failing += [f"{name}: another object" for name, value, before in names if not _is_same(value, before)]
        return [*failing, f"tensors of the versions {self.versions(())}"]


def has_unguarded(trace: Trace) -> bool:
    """Whether a program has ops that call functions of the user whose reads are not guarded."""
    return any(Tag.UNGUARDED in bound.symbol.tags for bound in trace.symbols)


def with_checks(run: RunFunction, names: Sequence[str], prologue: Prologue) -> RunFunction:
    """A function that calls ``run`` while `this_thread.run` is a `Run`.

    Args:
        names: those of the inputs.
        prologue: checks what the program reads, and no modes, which differ inside of it.
    """

    def call(inputs: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer, this_thread.run = this_thread.run, Run(inputs, names, prologue, args, kwargs)
        try:
            return run(inputs, args, kwargs)
        finally:
            this_thread.run = outer

    return call


def _is_same(now: Any, before: Any) -> bool:
    """Whether an input is the same tensor or number; other objects are guarded, or each call creates them."""
    if isinstance(before, torch.Tensor):
        return now is before
    return type(now) is type(before) and (now == before or now != now) if type(before) in (int, float) else True
