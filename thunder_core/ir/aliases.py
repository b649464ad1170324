"""Which storages a trace creates, reads, writes and returns."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property

from thunder_core.ir.bound_symbol import (
    BoundSymbol,
    tensor_inputs_of,
    tensor_outputs_of,
    tensors_written_by,
    written_storages,
)
from thunder_core.ir.proxy import TensorProxy, storages_of
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.pytorch_internals import OpOverload, schema_of

# Ops that return new storage for all strides of their arguments. A reshape, in contrast, may be a copy or a view.
_CREATOR_TAGS = frozenset({Tag.MATMUL, Tag.ELEMENTWISE, Tag.REDUCTION})


class Aliases:
    """The storages of one trace, by number. Each property is computed on first access.

    The object describes an immutable trace. A pass that changes which values share storage tracks the change itself.
    """

    def __init__(self, trace: Trace) -> None:
        # no reference to the trace: it caches this object, and the two would form a reference cycle
        self._inputs, self._ops, self._output = trace.inputs, trace.symbols, trace.output

    @classmethod
    def of(cls, trace: Trace) -> Aliases:
        """The `Aliases` of ``trace``, cached on the trace."""
        if trace._aliases is None:
            object.__setattr__(trace, "_aliases", cls(trace))
        aliases: Aliases = trace._aliases
        return aliases

    @cached_property
    def written(self) -> frozenset[int]:
        """Storages that ops write."""
        return written_storages(self._ops)

    @cached_property
    def pinned(self) -> frozenset[int]:
        """Storages that ops write, or that are arguments of ops with effects visible outside of tensors.

        A pass must not replace a tensor in such a storage by an equal one in another storage.
        """
        pinned: set[int] = set()
        for op in self._ops:
            touched = tensor_inputs_of(op) if op.effects.visible else tensors_written_by(op)
            pinned.update([proxy.storage for proxy in touched])
        return frozenset(pinned)

    @cached_property
    def escaping(self) -> frozenset[int]:
        """Storages of tensors that the trace returns."""
        return frozenset(storages_of(iterate_proxies(self._output)))

    @cached_property
    def given(self) -> frozenset[int]:
        """Storages of the trace's inputs."""
        return frozenset(storages_of(self._inputs))

    @cached_property
    def written_inputs(self) -> tuple[int, ...]:
        """Positions of the inputs whose storages ops write."""
        inputs = enumerate(self._inputs)
        return tuple([at for at, proxy in inputs if isinstance(proxy, TensorProxy) and proxy.storage in self.written])

    @cached_property
    def visible(self) -> frozenset[str]:
        """Names of returned values and of the values that they are views of, which callers reach as ``view._base``."""
        names = {proxy.name for proxy in iterate_proxies(self._output)}
        for op in reversed(self._ops):
            if op.is_view() and not names.isdisjoint([proxy.name for proxy in op.outputs()]):
                names.update([proxy.name for proxy in op.inputs()])
        return frozenset(names)

    def storages_of(self, names: Container[str]) -> frozenset[int]:
        """The storages of the values with these names."""
        storages = [proxy.storage for proxy in self._inputs if isinstance(proxy, TensorProxy) and proxy.name in names]
        for op in self._ops:
            storages += [proxy.storage for proxy in tensor_outputs_of(op) if proxy.name in names]
        return frozenset(storages)

    def fixed(self, protected: frozenset[str] = frozenset()) -> frozenset[int]:
        """The storages that must not be merged with others: pinned, escaping, and those of the values ``protected``."""
        fixed = self.pinned | self.escaping
        return fixed | self.storages_of(protected) if protected else fixed

    def definitions(self, storage: int) -> Sequence[tuple[int, TensorProxy]]:
        """The values that ops define in a storage, each with the position of its op, in order."""
        return self._uses[0].get(storage, ())

    def readers(self, storage: int) -> Sequence[int]:
        """The positions of the ops that read a storage, in order. The trace's return does not count as a read."""
        return self._uses[1].get(storage, ())

    def is_last_read_at(self, storage: int, index: int) -> bool:
        """Whether neither an op after ``index`` nor the caller reads the storage."""
        readers = self.readers(storage)
        return storage not in self.escaping and (not readers or readers[-1] <= index)

    def is_created(self, storage: int) -> bool:
        """Whether an op, or an op inside a region, creates the storage for all possible inputs."""
        definitions = self.definitions(storage)
        if storage in self.given or not definitions:
            return False
        creator = self._ops[definitions[0][0]]
        if not creator.effects.pure:
            return False
        part = next((part for part in creator.parts if _defines(part, storage)), creator)
        return _creates(part)

    @cached_property
    def _uses(self) -> tuple[dict[int, list[tuple[int, TensorProxy]]], dict[int, list[int]]]:
        """Definitions and readers, by storage."""
        definitions: dict[int, list[tuple[int, TensorProxy]]] = {}
        readers: dict[int, list[int]] = {}
        for index, op in enumerate(self._ops):
            for storage in dict.fromkeys([proxy.storage for proxy in tensor_inputs_of(op)]):
                readers.setdefault(storage, []).append(index)
            for proxy in tensor_outputs_of(op):
                definitions.setdefault(proxy.storage, []).append((index, proxy))
        return definitions, readers


def _defines(op: BoundSymbol, storage: int) -> bool:
    return any(proxy.storage == storage for proxy in tensor_outputs_of(op))


def _creates(op: BoundSymbol) -> bool:
    target = op.symbol.target
    if isinstance(target, OpOverload):
        return not any(result.alias_info for result in schema_of(target).returns)
    return not _CREATOR_TAGS.isdisjoint(op.symbol.tags)
