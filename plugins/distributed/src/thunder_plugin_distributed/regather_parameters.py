"""Select the gathered parameters that are saved for backward; backward gathers the others again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from thunder.report.amounts import bytes_text
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.coalesced import is_parameter_gather, whole_bytes
from thunder_plugin_distributed.gathers import read_positions
from thunder_plugin_distributed.sharded_parameters import arrived, arrived_again, gather, gather_again


def _symbols(*functions: Callable[..., Any]) -> tuple[Symbol, ...]:
    """Looked up for each program: this module can be imported before the rows of the plugin are registered."""
    return tuple(map(registry.symbol_of, functions))


@dataclass(frozen=True)
class RegatherParameters(Transform):
    """Saves gathered parameters for backward up to a number of bytes, whatever ``reshard_after_forward`` is.

    Gathers are considered in the order in which backward needs them: from the one whose parameters forward reads last.
    Its parameters are saved for the shortest time, and in backward there is the least computation before it that a
    gather could overlap with. A gather that exceeds the rest of the budget is repeated in backward.

    The choice depends on the order of the ops and on sizes of parameters. It does not depend on the memory of
    activations, which can differ between ranks: all ranks have to communicate the same.

    Attributes:
        memory_budget: the maximum number of bytes of whole parameters that are saved for backward. Parameters that
            backward does not read count, although they are not saved.
    """

    name: ClassVar[str] = "regather_parameters"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION
    verified: ClassVar[bool] = False

    memory_budget: int

    def applies(self, context: TransformContext) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        gathers = [op for op in trace.symbols if is_parameter_gather(op)]
        if not gathers or not trace.context.grad_enabled:
            return trace
        last = read_positions(trace, max)
        saved: set[int] = set()
        left = self.memory_budget
        for op in sorted(gathers, key=lambda op: _last_read(op, last), reverse=True):
            if whole_bytes(op) <= left:
                left -= whole_bytes(op)
                saved.add(id(op))
        total = sum(map(whole_bytes, gathers))
        context.notes.append(
            f"{self.name}: of {len(gathers)} gathers of {bytes_text(total)}, {len(saved)} of "
            f"{bytes_text(self.memory_budget - left)} are saved for backward, the others are repeated in it"
        )
        return trace.with_symbols(_chosen(trace, saved), self.name)


def _chosen(trace: Trace, saved: set[int]) -> list[BoundSymbol]:
    """The ops, with gathers that are saved for backward if their identity is in ``saved``, and repeated otherwise."""
    starts, ends = _symbols(gather, gather_again), _symbols(arrived, arrived_again)
    waits: dict[str, Symbol] = {}
    ops: list[BoundSymbol] = []
    for op in trace.symbols:
        if is_parameter_gather(op):
            again = id(op) not in saved
            waits |= {proxy.name: ends[again] for proxy in op.outputs()}
            ops.append(replace(op, symbol=starts[again]))
        elif op.symbol in ends:
            ops.append(replace(op, symbol=waits.get(op.args[0].name, op.symbol)))
        else:
            ops.append(op)
    return ops


def _last_read(gather: BoundSymbol, last: dict[str, int]) -> int:
    return max([last.get(proxy.name, -1) for proxy in gather.outputs()], default=-1)
