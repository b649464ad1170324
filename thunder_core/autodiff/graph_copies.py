"""Copies for lines that autograd records at run time, of memory that is overwritten before backward runs.

What the partition saves it copies itself. What such a line saves is inside of its graph, where PyTorch counts every
write to the tensor's whole storage against it: also the program's own write to another part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy
from thunder_core.ir.tensors import tensor_outputs_of
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes import operations


def with_graph_copies(lines: Iterable[BoundSymbol], trace: Trace, overwritten: Container[str]) -> list[BoundSymbol]:
    """The lines, of which those of `derive_by_eager` call their function with copies of what is written later.

    Args:
        trace: the program.
        overwritten: names of its inputs that are written after it.
    """
    storages = Aliases.of(trace).storages_of(overwritten)
    return [_with_copies(line, storages) if storages and _records_graph(line) else line for line in lines]


def _records_graph(line: BoundSymbol) -> bool:
    outputs = line.outputs()
    return bool(outputs) and isinstance(outputs[-1], OpaqueProxy) and outputs[-1].type_name == "EagerGraph"


def _with_copies(line: BoundSymbol, storages: frozenset[int]) -> BoundSymbol:
    function, (args, kwargs) = line.args[0], line.args[-2:]
    if function is operations.recomputed_call:  # it writes the program's own inputs in backward
        return line
    leaves = list(iterate_leaves((args, kwargs)))
    written = _written(*args) if function is operations.functional_call else frozenset()
    shared = {proxy.storage for proxy in tensor_outputs_of(line)}
    copied = {
        leaf.name: position
        for position, leaf in enumerate(leaves)
        if isinstance(leaf, TensorProxy) and leaf.storage in storages - shared and leaf.name not in written
    }
    return replace(line, kwargs={"copied": tuple(copied.values())}) if copied else line


def _written(
    function: Callable[..., Any], written: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> frozenset[str]:
    """The arguments that `functional_call` copies itself."""
    leaves = list(iterate_leaves((args, kwargs)))
    return frozenset([leaves[position].name for position in written])
