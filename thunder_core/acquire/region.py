"""Lines recorded apart from their surroundings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.tensors import Tensors
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.effects import Effects, joined
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.symbols.autocast import CLEAR_CACHE
from thunder_core.symbols.schema import communicates


class Region:
    """Lines recorded apart from their surroundings, to become the body of a higher-order symbol.

    Attributes:
        trace: that they are recorded apart from.
        tensors: of the program.
        lines: those of the region.
    """

    def __init__(self, trace: OpenTrace, tensors: Tensors) -> None:
        self.trace = trace
        self.tensors = tensors
        self.lines: list[BoundSymbol] = []
        self.first_made = len(tensors.made)
        self.first_renamed = len(tensors.renamed)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Send lines here for the duration."""
        trace = self.trace
        trace.outer_lines.append(trace.lines)
        trace.lines = self.lines
        try:
            yield
        except BaseException:
            trace.is_region_cut = True
            raise
        finally:
            trace.lines = trace.outer_lines.pop()

    def live_tensors(self) -> list[torch.Tensor]:
        """Traced tensors made in the region that somebody still holds."""
        return self.tensors.alive(self.first_made)

    def defined(self) -> set[str]:
        return {proxy.name for line in self.lines for proxy in line.outputs()}

    def free(self) -> tuple[Proxy, ...]:
        """Values used but not defined in the region, in order of first use."""
        defined = self.defined()
        found: dict[str, Proxy] = {}
        for line in self.lines:
            for proxy in line.inputs():
                if proxy.name not in defined:
                    found.setdefault(proxy.name, proxy)
        return tuple(found.values())

    def effects(self) -> Effects:
        """Union of the lines' effects, as seen from outside."""
        storages = set()
        for line in self.lines:
            mutated = set(line.effects.mutates)
            storages |= {p.storage for p in line.inputs() if isinstance(p, TensorProxy) and p.name in mutated}
        mutates = tuple(p.name for p in self.free() if isinstance(p, TensorProxy) and p.storage in storages)
        return joined([line.effects for line in self.lines if line.symbol is not CLEAR_CACHE], mutates)

    def only_communicates(self) -> bool:
        """Whether what lines do besides is to call operators that communicate and give their result."""
        return all(not line.effects.visible or _gives_what_arrives(line) for line in self.lines)

    def leave_writes(self) -> None:
        """Move lines to those around: from the first on to the last that writes a tensor from outside."""
        count = max(index for index, line in enumerate(self.lines) if self._writes_outside(line)) + 1
        self.trace.lines += self.lines[:count]
        del self.lines[:count]

    def _writes_outside(self, line: BoundSymbol) -> bool:
        storages = {proxy.storage for proxy in self.free() if isinstance(proxy, TensorProxy)}
        written = set(line.effects.mutates)
        return any(p.storage in storages for p in line.inputs() if isinstance(p, TensorProxy) and p.name in written)

    def restore_names(self) -> None:
        """Tensors from outside that were written inside go by their old names again: the memory is the same."""
        defined = self.defined()
        for variable, old in reversed(self.tensors.renamed[self.first_renamed :]):
            if old.name not in defined and variable.proxy.name in defined:
                variable.proxy = replace(variable.proxy, name=old.name, requires_grad=old.requires_grad)
        del self.tensors.renamed[self.first_renamed :]  # names of this region mean nothing to the one around it

    def body(self, stem: str, inputs: tuple[Proxy, ...], output: Any) -> Trace:
        """The region as a trace."""
        name = self.trace.names.for_input(stem)
        context, ambient = current_context(), self.trace.ambient
        lines = [_relative(line, ambient, context) for line in self.lines]
        return Trace(name, inputs, tuple(lines), output, Stage.ACQUIRED, "acquisition", context)


def _gives_what_arrives(line: BoundSymbol) -> bool:
    return communicates(line.symbol.target) and not line.effects.mutates


def _relative(line: BoundSymbol, ambient: Context, context: Context) -> BoundSymbol:
    """A line recorded under the modes ``ambient``, as a line of a trace under the modes ``context``."""
    own = line.context or ambient
    return replace(line, context=None if own == context else own)
