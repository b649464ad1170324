"""Inline the ops of one trace into another, with names and storages for new values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.geometry import StoragePosition
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import list_proxies, map_leaves


class Inlining:
    """A mapping from the values of one trace to those of another.

    Args:
        pairs: corresponding values of the two traces; their storages correspond too.
        name: returns a new name; called once for each value that is in no pair.
        storage: returns a new storage number; called once for each storage that is in no pair.
    """

    def __init__(
        self, pairs: Iterable[tuple[Proxy, Proxy]], name: Callable[[Proxy], str], storage: Callable[[], int]
    ) -> None:
        self._values: dict[str, Proxy] = {}
        self._storages: dict[int, StoragePosition] = {}
        self._name = name
        self._storage = storage
        self.add(pairs)

    def add(self, pairs: Iterable[tuple[Proxy, Proxy]]) -> None:
        """Add corresponding values; those of a name or storage that has a correspondence already are ignored."""
        for old, new in pairs:
            self._values.setdefault(old.name, new)
            if isinstance(old, TensorProxy) and isinstance(new, TensorProxy) and old.storage not in self._storages:
                self._storages[old.storage] = StoragePosition.between(old, new)

    def copy(self, name: Callable[[Proxy], str]) -> Inlining:
        """The same mapping, with another function for new names."""
        copy = Inlining((), name, self._storage)
        copy._values.update(self._values)
        copy._storages.update(self._storages)
        return copy

    def value(self, leaf: Any) -> Any:
        """The corresponding value of a proxy; other leaves unchanged."""
        if not isinstance(leaf, PROXY_TYPES):
            return leaf
        value = self._values.get(leaf.name)
        if value is None:
            value = self._values[leaf.name] = self._new(leaf)
        return value

    def op(self, op: BoundSymbol) -> BoundSymbol:
        """The op with its values replaced by those of the other trace."""
        args, kwargs = map_leaves(self.value, op.args), map_leaves(self.value, op.kwargs)
        effects = op.effects
        if effects.mutates:
            effects = replace(effects, mutates=tuple([self._values[name].name for name in effects.mutates]))
        return BoundSymbol(op.symbol, args, kwargs, map_leaves(self.value, op.output), effects, op.context, op.location)

    def _new(self, proxy: Proxy) -> Proxy:
        if not isinstance(proxy, TensorProxy):
            return replace(proxy, name=self._name(proxy))
        if proxy.storage not in self._storages:
            self._storages[proxy.storage] = StoragePosition(self._storage())
        return replace(self._storages[proxy.storage].moved(proxy), name=self._name(proxy))


class Builder:
    """Allocates names and storage numbers that are unused in a trace, and inlines other traces into it.

    Args:
        names: the used names; allocated names are added.
        storage: the first unused storage number.
    """

    def __init__(self, names: set[str], storage: int) -> None:
        self.names = names
        self.storage = storage
        self._counts: dict[str, int] = {}
        self._temporaries: Iterator[int] | None = None

    @classmethod
    def of(cls, trace: Trace, *, bodies: bool = True) -> Builder:
        """A builder for a trace; with ``bodies``, names in traces among the arguments of its ops count as used too."""
        proxies = list(trace.all_values() if bodies else trace.values())
        storage = 1 + max((p.storage for p in proxies if isinstance(p, TensorProxy)), default=-1)
        return cls({proxy.name for proxy in proxies}, storage)

    def name(self, stem: str, *, numbered: bool = False) -> str:
        """A new name: ``stem``, or ``stem_<n>`` if that is used or ``numbered`` is true."""
        name, number = stem, self._counts.get(stem, 0)
        while numbered or name in self.names:
            number += 1
            name, numbered = f"{stem}_{number}", False
        self._counts[stem] = number
        self.names.add(name)
        return name

    def temporary(self) -> str:
        """A new name for an intermediate value, ``t<n>``, numbered after those of the trace."""
        if self._temporaries is None:
            numbers = [int(name[1:]) for name in self.names if name[0] == "t" and name[1:].isdecimal()]
            self._temporaries = count(max(numbers, default=-1) + 1)
        return self.name(f"t{next(self._temporaries)}")

    def new_storage(self) -> int:
        """A new storage number."""
        self.storage += 1
        return self.storage - 1

    def inline(self, trace: Trace, bound: BoundSymbol) -> tuple[BoundSymbol, ...]:
        """The ops of ``trace`` on the values of ``bound``, to replace ``bound``.

        The inputs and outputs of the trace correspond in order to `BoundSymbol.inputs` and `BoundSymbol.outputs`. The
        returned ops define the outputs of ``bound`` and have its context and location; the trace's other values get
        new names.
        """
        inputs = zip(trace.inputs, bound.inputs(), strict=True)
        outputs = zip(list_proxies((trace.output,)), bound.outputs(), strict=True)
        stem = next((proxy.name for proxy in bound.outputs()), bound.symbol.name.rpartition(".")[2])
        inlining = Inlining((*inputs, *outputs), lambda _: self.name(stem, numbered=True), self.new_storage)
        ops = map(inlining.op, trace.symbols)
        return tuple([replace(op, context=bound.context, location=bound.location) for op in ops])
