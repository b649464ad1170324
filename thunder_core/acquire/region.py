"""Regions: ops that are recorded separately, to become the body of a higher-order symbol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.tensors import Tensors
from thunder_core.ir.bound_symbol import BoundSymbol, written_storages
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.effects import Effects, joined
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.symbols.functions import CLEAR_CACHE


class Region:
    """Ops that are recorded separately from the ops around, to become the body of a higher-order symbol.

    Attributes:
        trace: the trace of the program.
        tensors: the tensor objects of the program.
        ops: the ops of the region.
    """

    def __init__(self, trace: OpenTrace, tensors: Tensors) -> None:
        self.trace = trace
        self.tensors = tensors
        self.ops: list[BoundSymbol] = []
        self.first_created = len(tensors.created)
        self.first_renamed = len(tensors.renamed)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record ops in this region for the duration."""
        trace = self.trace
        trace.outer_ops.append(trace.ops)
        trace.ops = self.ops
        try:
            yield
        except BaseException:
            trace.is_region_cut = True
            raise
        finally:
            trace.ops = trace.outer_ops.pop()

    def live_tensors(self) -> list[torch.Tensor]:
        """Traced tensors that were created in the region and are still referenced."""
        return self.tensors.alive(self.first_created)

    def defined(self) -> set[str]:
        return {proxy.name for op in self.ops for proxy in op.outputs()}

    def free(self) -> tuple[Proxy, ...]:
        """The values that are used but not defined in the region, in order of first use."""
        defined = self.defined()
        free: dict[str, Proxy] = {}
        for op in self.ops:
            for proxy in op.inputs():
                if proxy.name not in defined:
                    free.setdefault(proxy.name, proxy)
        return tuple(free.values())

    def effects(self) -> Effects:
        """The union of the ops' effects that are visible outside of the region."""
        storages = written_storages(self.ops)
        mutates = tuple(p.name for p in self.free() if isinstance(p, TensorProxy) and p.storage in storages)
        return joined([op.effects for op in self.ops if op.symbol is not CLEAR_CACHE], mutates)

    def only_communicates(self) -> bool:
        """Whether the only visible effects of the ops are communications, which write no tensors from outside."""
        return not any(op.effects.external or (op.effects.channels and op.effects.mutates) for op in self.ops)

    def leave_writes(self) -> None:
        """Move all ops up to the last one that writes a tensor from outside to the ops around the region."""
        count = max(index for index, op in enumerate(self.ops) if self._writes_outside(op)) + 1
        self.trace.ops += self.ops[:count]
        del self.ops[:count]

    def _writes_outside(self, op: BoundSymbol) -> bool:
        storages = {proxy.storage for proxy in self.free() if isinstance(proxy, TensorProxy)}
        return not storages.isdisjoint(written_storages([op]))

    def restore_names(self) -> None:
        """Restore the outer names of tensors from outside that were written inside: the storage is the same."""
        defined = self.defined()
        for variable, old in reversed(self.tensors.renamed[self.first_renamed :]):
            if old.name not in defined and variable.proxy.name in defined:
                variable.proxy = replace(variable.proxy, name=old.name, requires_grad=old.requires_grad)
        del self.tensors.renamed[self.first_renamed :]  # names of this region are undefined outside of it

    def body(self, stem: str, inputs: tuple[Proxy, ...], output: Any) -> Trace:
        """The region as a trace."""
        name = self.trace.names.for_input(stem)
        context, ambient = current_context(), self.trace.ambient
        ops = [_relative(op, ambient, context) for op in self.ops]
        return Trace(name, inputs, tuple(ops), output, Stage.ACQUIRED, "acquisition", context)


def _relative(op: BoundSymbol, ambient: Context, context: Context) -> BoundSymbol:
    """An op recorded under the modes ``ambient``, converted for a trace under the modes ``context``."""
    absolute = op.context or ambient
    return replace(op, context=None if absolute == context else absolute)
