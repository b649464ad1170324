"""Which values of a trace share memory, while in-place calls are put back into it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import Size
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.passes import operations


class MemoryMap:
    """Storage numbers that became one, and names that became others.

    Attributes:
        proxies: every value of the trace by name, as the trace has it.
        definitions: the line that defines a name.
    """

    def __init__(self, trace: Trace) -> None:
        self.proxies: dict[str, Proxy] = {proxy.name: proxy for proxy in trace.inputs}
        self.definitions: dict[str, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._joined: dict[int, tuple[int, Size]] = {}
        self._members: dict[int, list[int]] = {}
        self._names: dict[str, str] = {}
        self._final: dict[str, Proxy] = {}
        for index, bound in enumerate(trace.symbols):
            # `with_data` takes the gradient of its first argument and does not look at its memory
            skipped = 1 if bound.symbol.target is operations.with_data else 0
            self._read(bound.inputs()[skipped:], index)
            for proxy in bound.outputs():
                self.proxies[proxy.name] = proxy
                self.definitions[proxy.name] = index
        self._read(iterate_proxies(trace.output), len(trace.symbols))

    def _read(self, proxies: Any, index: int) -> None:
        for proxy in proxies:
            if isinstance(proxy, TensorProxy):
                self._readers.setdefault(proxy.storage, []).append(index)

    def readers(self, name: str) -> list[int]:
        """Lines that read the current value of ``name``'s memory; the number of lines stands for the return."""
        storage = self._memory(name)[0]
        numbers = self._members.get(storage, [storage])
        return [line for number in numbers for line in self._readers.get(number, ())]

    def overwrite(self, name: str) -> None:
        """Forget the readers of the memory's value so far: it was shown that none comes later."""
        self._members[self._memory(name)[0]] = []

    def same(self, one: str, other: str) -> bool:
        """Whether two values lie in one memory."""
        return self._memory(one)[0] == self._memory(other)[0]

    def same_view(self, one: str, other: str) -> bool:
        """Whether two values show the same elements of one memory in the same way."""
        if one not in self.proxies or other not in self.proxies:
            return False
        left, right = self.value(self.proxies[one]), self.value(self.proxies[other])
        if not isinstance(left, TensorProxy) or not isinstance(right, TensorProxy):
            return False
        return (left.storage, left.geometry, left.dtype) == (right.storage, right.geometry, right.dtype)

    def join(self, new: str, old: str) -> None:
        """The memory of ``new`` is that of ``old`` from now on, at the place of ``old``."""
        value, place = self.proxies.get(new), self.proxies[old]
        if not isinstance(value, TensorProxy) or not isinstance(place, TensorProxy):
            return
        target, shift = self._memory(old)
        current, _ = self._memory(new)
        if current == target:
            return
        distance = (place.offset * place.dtype.itemsize + shift) - value.offset * value.dtype.itemsize
        self._joined[value.storage] = (target, distance)
        self._members.setdefault(target, []).append(value.storage)

    def rename(self, name: str, to: str) -> None:
        """Later lines use ``to`` in place of ``name``."""
        self._names[name] = to

    def adopt(self, name: str, old: str, original: BoundSymbol) -> None:
        """``name``, an output of an in-place call that was put back, is ``old``."""
        place = self.proxies[old]
        output = next(proxy for proxy in original.outputs() if proxy.name == name)
        if isinstance(place, TensorProxy) and isinstance(output, TensorProxy):
            self.proxies[name] = replace(output, storage=place.storage, offset=place.offset)
            self._final.pop(name, None)

    def value(self, proxy: Proxy) -> Proxy:
        """What stands for a value of the functional trace."""
        name = proxy.name
        while name in self._names:
            name = self._names[name]
        final = self._final.get(name)
        if final is None:
            final = self._final[name] = self._placed(self.proxies[name])
        return final

    def line(self, bound: BoundSymbol) -> BoundSymbol:
        """A line with all its values replaced."""
        if not any(map(self._changed, bound.inputs())) and not any(map(self._changed, bound.outputs())):
            return bound
        bound = bound.map_arguments(self._leaf)
        mutates = tuple(self.value(self.proxies[name]).name for name in bound.effects.mutates)
        if mutates:
            bound = replace(bound, effects=replace(bound.effects, mutates=mutates))
        return replace(bound, output=map_leaves(self._output, bound.output))

    def _changed(self, proxy: Proxy) -> bool:
        if proxy.name in self._names:
            return True
        return isinstance(proxy, TensorProxy) and (
            proxy.storage in self._joined or self.proxies[proxy.name] is not proxy
        )

    def _leaf(self, leaf: Any) -> Any:
        return self.value(leaf) if isinstance(leaf, PROXY_TYPES) else leaf

    def _output(self, leaf: Any) -> Any:
        return self._placed(self.proxies[leaf.name]) if isinstance(leaf, PROXY_TYPES) else leaf

    def _placed(self, proxy: Proxy) -> Proxy:
        if not isinstance(proxy, TensorProxy) or proxy.storage not in self._joined:
            return proxy
        storage, shift = self._joined[proxy.storage]
        return replace(proxy, storage=storage, offset=proxy.offset + shift // proxy.dtype.itemsize)

    def _memory(self, name: str) -> tuple[int, Size]:
        proxy = self.proxies[name]
        if not isinstance(proxy, TensorProxy):
            return -1, 0
        return self._joined.get(proxy.storage, (proxy.storage, 0))
