"""PyTorch's OpInfo database, by the symbols that its entries may become."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.private_names import is_missing
from thunder_core.symbols.registry import registry
from thunder_testing.conformance.failure import ConformanceError
from thunder_testing.conformance.subject import Subject

if TYPE_CHECKING:
    from thunder_testing.pytorch_internals import OpInfo


def opinfos(subject: Subject) -> list[OpInfo]:
    """The entries of the database for an operation, perhaps none."""
    found = {operator.full_name: operator for symbol in subject.symbols for operator in _index().get(symbol, ())}
    return [found[name] for name in sorted(found)]  # the same order in every process


@cache
def _index() -> dict[Symbol, list[OpInfo]]:
    """The database by the symbols that its entries may become, whatever the spelling."""
    found: dict[Symbol, list[OpInfo]] = {}
    for operator in _database():
        for symbol in _symbols(operator):
            found.setdefault(symbol, []).append(operator)
    return found


def _symbols(operator: OpInfo) -> set[Symbol]:
    variants = (operator.op, operator.method_variant, operator.inplace_variant, operator.operator_variant)
    symbols = {registry.symbol_of(variant) for variant in variants if variant is not None}
    packet = getattr(torch.ops.aten, (operator.aten_name or operator.name).rpartition(".")[2], None)
    if packet is not None:
        overloads = [getattr(packet, name) for name in packet.overloads()]
        symbols.update(registry.symbol_of(function) for function in (packet, *overloads))
    for name in (f"torch.{operator.name}", *[f"torch.{alias.name}" for alias in operator.aliases]):
        try:
            symbols.add(registry.symbol_named(name))
        except LookupError:  # an entry of the database that is no function of torch
            continue
    return {symbol for symbol in symbols if Tag.LOCAL not in symbol.tags}


def _database() -> Any:
    from thunder_testing.pytorch_internals import op_db

    if is_missing(op_db):
        raise ConformanceError(
            f"PyTorch's OpInfo database, where samples come from, cannot be imported: {op_db!r}",
            advice=("pip install expecttest numpy",),
        )
    return op_db
