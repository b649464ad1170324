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
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.pytorch_internals import OpOverload, schema_of

# Results of these lie in new memory whatever strides their arguments come with; a reshape may be a copy or a view.
_CREATORS = frozenset({Tag.MATMUL, Tag.ELEMENTWISE, Tag.REDUCTION})


class Aliases:
    """The storages of one trace, by their numbers. Each property is computed when it is first needed.

    It holds for the trace as it is: a pass that changes which values share storage keeps track of that itself.
    """

    def __init__(self, trace: Trace) -> None:
        # not the trace, which holds this object
        self._inputs, self._lines, self._output = trace.inputs, trace.symbols, trace.output

    @classmethod
    def of(cls, trace: Trace) -> Aliases:
        """The aliases of ``trace``; one object for each trace."""
        if trace._aliases is None:
            object.__setattr__(trace, "_aliases", cls(trace))
        aliases: Aliases = trace._aliases
        return aliases

    @cached_property
    def written(self) -> frozenset[int]:
        """Storages that lines write."""
        return written_storages(self._lines)

    @cached_property
    def pinned(self) -> frozenset[int]:
        """Storages that lines write, or give to effects that are visible outside of tensors.

        Two tensors in one of them do not stand for one another.
        """
        pinned: set[int] = set()
        for line in self._lines:
            touched = tensor_inputs_of(line) if line.effects.visible else tensors_written_by(line)
            pinned.update([proxy.storage for proxy in touched])
        return frozenset(pinned)

    @cached_property
    def escaping(self) -> frozenset[int]:
        """Storages of results."""
        return frozenset([proxy.storage for proxy in iterate_proxies(self._output) if isinstance(proxy, TensorProxy)])

    @cached_property
    def given(self) -> frozenset[int]:
        """Storages of inputs."""
        return frozenset([proxy.storage for proxy in self._inputs if isinstance(proxy, TensorProxy)])

    @cached_property
    def written_inputs(self) -> tuple[int, ...]:
        """Positions of the inputs whose storages lines write."""
        inputs = enumerate(self._inputs)
        return tuple([at for at, proxy in inputs if isinstance(proxy, TensorProxy) and proxy.storage in self.written])

    @cached_property
    def visible(self) -> frozenset[str]:
        """Names of results, and of the values that these are views of: PyTorch's views know their base."""
        names = {proxy.name for proxy in iterate_proxies(self._output)}
        for line in reversed(self._lines):
            if line.is_view() and not names.isdisjoint([proxy.name for proxy in line.outputs()]):
                names.update([proxy.name for proxy in line.inputs()])
        return frozenset(names)

    def storages_of(self, names: Container[str]) -> frozenset[int]:
        """The storages of the values of these names."""
        found = [proxy.storage for proxy in self._inputs if isinstance(proxy, TensorProxy) and proxy.name in names]
        for line in self._lines:
            found += [proxy.storage for proxy in tensor_outputs_of(line) if proxy.name in names]
        return frozenset(found)

    def fixed(self, keep: frozenset[str] = frozenset()) -> frozenset[int]:
        """The storages that must stay apart from others: pinned and escaping ones, and those of ``keep``."""
        fixed = self.pinned | self.escaping
        return fixed | self.storages_of(keep) if keep else fixed

    def definitions(self, storage: int) -> Sequence[tuple[int, TensorProxy]]:
        """The values that lines define in a storage, with the positions of the lines, in order."""
        return self._uses[0].get(storage, ())

    def readers(self, storage: int) -> Sequence[int]:
        """The positions of the lines that read a storage, in order. That the trace returns it is not counted."""
        return self._uses[1].get(storage, ())

    def is_last_read_at(self, storage: int, index: int) -> bool:
        """Whether no line after ``index`` reads the storage, nor the caller."""
        readers = self.readers(storage)
        return storage not in self.escaping and (not readers or readers[-1] <= index)

    def is_created(self, storage: int) -> bool:
        """Whether a line, or a line inside a region, certainly creates the storage, whatever its inputs are."""
        definitions = self.definitions(storage)
        if storage in self.given or not definitions:
            return False
        creator = self._lines[definitions[0][0]]
        if not creator.effects.pure:
            return False
        part = next((part for part in creator.parts if _defines(part, storage)), creator)
        return _creates(part)

    @cached_property
    def _uses(self) -> tuple[dict[int, list[tuple[int, TensorProxy]]], dict[int, list[int]]]:
        """Definitions and readers, by storage."""
        definitions: dict[int, list[tuple[int, TensorProxy]]] = {}
        readers: dict[int, list[int]] = {}
        for index, line in enumerate(self._lines):
            for storage in dict.fromkeys([proxy.storage for proxy in tensor_inputs_of(line)]):
                readers.setdefault(storage, []).append(index)
            for proxy in tensor_outputs_of(line):
                definitions.setdefault(proxy.storage, []).append((index, proxy))
        return definitions, readers


def _defines(line: BoundSymbol, storage: int) -> bool:
    return any(proxy.storage == storage for proxy in tensor_outputs_of(line))


def _creates(line: BoundSymbol) -> bool:
    target = line.symbol.target
    if isinstance(target, OpOverload):
        return not any(result.alias_info for result in schema_of(target).returns)
    return not _CREATORS.isdisjoint(line.symbol.tags)
