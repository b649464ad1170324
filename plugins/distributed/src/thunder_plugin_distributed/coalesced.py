"""Split and merge collectives that all-gather or reduce-scatter several tensors, and compute their costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.storage_sizes import element_bytes
from thunder_core.ir.trace import Trace
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.symbols.channels import ranks_of
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.collectives import reduce_scatter
from thunder_plugin_distributed.hardware import Hardware
from thunder_plugin_distributed.program_collectives import Collective, collectives_of
from thunder_plugin_distributed.sharded_parameters import gather, gather_again

# The symbols are looked up at each use: a transform of a configuration is imported before the plugin's rows, with which
# the registry returns other symbols, are registered.


def is_parameter_gather(op: BoundSymbol) -> bool:
    """Whether the op gathers parameters. Its second argument has a length for each of them."""
    return op.symbol is registry.symbol_of(gather) or op.symbol is registry.symbol_of(gather_again)


def is_scatter(op: BoundSymbol) -> bool:
    """Whether the op reduces and scatters gradients."""
    return op.symbol is registry.symbol_of(reduce_scatter)


def gathers_of_inputs(trace: Trace) -> set[int]:
    """The ids of ops that gather parameters which are inputs of the trace, so that they can start at its beginning.

    Other collectives of the program, even of an input, keep their order among its effects.
    """
    given = {proxy.name for proxy in trace.inputs}
    gathers = [op for op in trace.symbols if is_parameter_gather(op)]
    return {id(op) for op in gathers if all(proxy.name in given for proxy in op.inputs())}


def without_collectors(trace: Trace) -> Trace:
    """A joint trace whose gathers have no collectors, which only their derivatives need."""
    ops = [
        replace(op, kwargs={}) if is_parameter_gather(op) and "collectors" in op.kwargs else op for op in trace.symbols
    ]
    return without_dead_code(trace.with_symbols(ops, "without_collectors"))


def part_of(op: BoundSymbol, places: Sequence[int]) -> BoundSymbol:
    """The op for the tensors at these places of its list."""
    lists, others = _split(op)
    args = [type(values)([values[place] for place in places]) for values in lists]
    kwargs = {name: [values[place] for place in places] for name, values in op.kwargs.items()}
    return replace(op, args=(*args, *others), kwargs=kwargs, output=[op.output[place] for place in places])


def merged(ops: Sequence[BoundSymbol]) -> BoundSymbol:
    """One op in place of several with equal `merge_key`, in order."""
    first, others = ops[0], _split(ops[0])[1]
    columns = zip(*[_split(op)[0] for op in ops], strict=True)
    args = [type(column[0])([item for values in column for item in values]) for column in columns]
    kwargs = {name: [item for op in ops for item in op.kwargs[name]] for name in first.kwargs}
    return replace(first, args=(*args, *others), kwargs=kwargs, output=[item for op in ops for item in op.output])


def merge_key(op: BoundSymbol) -> Any:
    """Equal for ops that can be merged: of one symbol, dtype, device and process group, with the same options."""
    kinds = {(proxy.dtype, proxy.device) for proxy in tensor_inputs_of(op)}
    return op.symbol, frozenset(kinds), _split(op)[1], tuple(op.kwargs), op.effects


def _split(op: BoundSymbol) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The positional arguments with an item for each tensor, and the others. Keyword arguments have such items, too."""
    lists = 2 if is_parameter_gather(op) else 1
    return op.args[:lists], op.args[lists:]


def latency_seconds(op: BoundSymbol, hardware: Hardware) -> float:
    """The latency of a collective, in seconds: its time without any bytes."""
    return sum(hardware.latency_seconds(ranks_of(each.group)) for each in collectives_of(op))


def transfer_seconds(op: BoundSymbol, hardware: Hardware) -> float:
    """The transfer time of the bytes that a collective sends, in seconds."""
    return sum(_transfer(each, hardware) for each in collectives_of(op))


def _transfer(collective: Collective, hardware: Hardware) -> float:
    ranks = ranks_of(collective.group)
    return hardware.transfer_seconds(collective.sent(len(ranks)), ranks)


def whole_bytes(op: BoundSymbol) -> int:
    """Bytes of the whole tensors of a collective: those that a gather returns, or that a reduce-scatter reads.

    Gradients that a gather passes to its derivative do not count.
    """
    whole = tensor_outputs_of(op) if is_parameter_gather(op) else tensor_inputs_of(op)
    return sum(map(element_bytes, whole))
