"""Emit the ops and values of the functional trace under construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.symbols.registry import registry


class Emitter:
    """Collects emitted ops.

    Attributes:
        ops: the ops emitted so far.
        name, storage: return a new name, and a new storage number, that are unused in the trace.
        may_record: whether autograd records any op of the trace.
        context, location: those of the op that is being rewritten; emitted ops get them.
    """

    def __init__(self, trace: Trace) -> None:
        self.ops: list[BoundSymbol] = []
        self.ambient = trace.context
        self.context: Context | None = None
        self.location: SourceLocation | None = None
        self.may_record = trace.context.grad_enabled or any(
            bound.context is not None and bound.context.grad_enabled for bound in trace.symbols
        )
        self._builder = Builder.of(trace, bodies=False)
        self.name = self._builder.temporary
        self.storage = self._builder.new_storage

    def fresh(self, like: TensorProxy, *, requires_grad: bool, storage: int | None = None) -> TensorProxy:
        """A new value with the metadata of ``like``, at offset 0 of a new storage unless ``storage`` is given."""
        return replace(
            like,
            name=self.name(),
            storage=self.storage() if storage is None else storage,
            offset=0 if storage is None else like.offset,
            requires_grad=requires_grad and like.can_require_grad,
        )

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], output: Any) -> None:
        """Emit a call of a torch function or of a function of `thunder_core.passes.operations`."""
        symbol, args, kwargs = registry.resolve(function, args, {})
        self.ops.append(BoundSymbol(symbol, args, kwargs, output, context=self.context, location=self.location))

    @contextmanager
    def modes_of(self, op: BoundSymbol | None) -> Iterator[None]:
        """Within the block, emitted ops get the modes of ``op``."""
        before = self.context
        self.context = before if op is None else op.context
        try:
            yield
        finally:
            self.context = before

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within the block, autograd records the emitted ops."""
        before = self.context
        self.context = replace(self.modes, grad_enabled=True, inference=False)
        try:
            yield
        finally:
            self.context = before

    @property
    def modes(self) -> Context:
        """The modes of ops emitted now."""
        return self.context or self.ambient

    @property
    def records_gradients(self) -> bool:
        """Whether autograd records ops emitted now."""
        return self.modes.grad_enabled and not self.modes.inference
