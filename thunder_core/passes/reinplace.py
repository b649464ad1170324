"""Restore in-place calls where no later line reads the old value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import Size
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.passes import operations
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize.result import FromComputation, FromInput, Functionalized, Mutation, ResultSource


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


@dataclass(frozen=True)
class Reinplace(Pass[Functionalized]):
    """Turns the functional form of an in-place call back into that call, wherever the old value is dead after it.

    What comes back is exactly the program's call, on the same storage, after the same calls: values,
    aliasing and what autograd records are those of eager. Writes into inputs then happen in the computation, and the
    epilogue does not copy. Run `DeadCode` before, so that lines nobody needs do not count as readers.

    Attributes:
        functionalized: the result of functionalization. The pass runs on its computation, as later passes
            changed it.
    """

    name: ClassVar[str] = "Reinplace"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL, Stage.EXECUTABLE})

    functionalized: Functionalized

    def run(self, trace: Trace, context: PassContext) -> Functionalized:
        """The program with fewer copies; its computation is of the executable stage if it has in-place calls."""
        given = replace(self.functionalized, computation=trace)
        return with_writes(given, self.name) if given.mutations else given

    def traces(self, result: Functionalized) -> tuple[Trace, ...]:
        return result.traces


def with_writes(functionalized: Functionalized, provenance: str, *, by_argument: bool = False) -> Functionalized:
    """The program with its in-place calls, where the old value is dead after them; of the executable stage.

    Args:
        by_argument: later lines read what a call returned by the name of the argument that it wrote and returned.
    """
    rewriting = _Rewriting(functionalized, by_argument)
    for mutation in functionalized.mutations:
        rewriting.restore(mutation)
    return rewriting.result(provenance)


class _Rewriting:
    def __init__(self, functionalized: Functionalized, by_argument: bool) -> None:
        self.functionalized = functionalized
        self.by_argument = by_argument
        self.trace = functionalized.computation
        self.memory = MemoryMap(self.trace)
        self.restored: dict[int, BoundSymbol] = {}
        self.dropped: set[int] = set()
        guesses = [index for index, bound in enumerate(self.trace.symbols) if Tag.GUESS in bound.symbol.tags]
        self.last_guess = max(guesses, default=-1)

    # ---- which ---------------------------------------------------------------------------------------------------

    def restore(self, mutation: Mutation) -> None:
        """Restore one in-place call if that is safe."""
        memory = self.memory
        lines = {memory.definitions[name] for name in mutation.lines if name in memory.definitions}
        position = memory.definitions.get(mutation.lines[0])
        if position is not None and position < self.last_guess:  # another program may have to run from the same inputs
            return
        if position is None or not all(self._dead_after(item, position, lines) for item in mutation.written):
            return
        original = _original(self.trace.symbols[position], mutation)
        if original is None:
            return
        self.dropped |= lines
        self.restored[position] = original
        for old, _, _, _ in mutation.written:
            memory.overwrite(old)
        by_position = {index: name for name, index in mutation.objects.items()}
        for index, (old, new, whole_before, whole_after) in enumerate(mutation.written):
            memory.join(new, old)
            if new in memory.proxies and new not in mutation.objects:
                memory.rename(new, by_position.get(index, old))
            if whole_after != new and whole_after in memory.proxies:
                memory.join(whole_after, whole_before)
                memory.rename(whole_after, whole_before)
        for name, index in mutation.objects.items():
            memory.adopt(name, mutation.written[index][0], original)
            if self.by_argument:
                memory.rename(name, mutation.written[index][0])

    def _dead_after(self, written: tuple[str, str, str, str], position: int, lines: set[int]) -> bool:
        old, _, whole, _ = written
        memory = self.memory
        if old not in memory.proxies or whole not in memory.proxies:
            return False
        if not memory.same(old, whole):
            return False
        return all(reader <= position or reader in lines for reader in memory.readers(old))

    # ---- rewriting -----------------------------------------------------------------------------------------------

    def result(self, provenance: str) -> Functionalized:
        symbols: list[BoundSymbol] = []
        for index, bound in enumerate(self.trace.symbols):
            original = self.restored.get(index)
            if original is not None:
                symbols.append(self.memory.line(original))
            elif index not in self.dropped and not self._superfluous(bound):
                symbols.append(self.memory.line(bound))
        epilogue = self._epilogue()
        values: dict[str, Proxy] = {}
        inputs = {proxy.name: index for index, proxy in enumerate(self.trace.inputs)}

        def source(proxy: Proxy) -> FromInput | FromComputation:
            value = self.memory.value(proxy)
            if value.name in inputs:
                return FromInput(inputs[value.name])
            values.setdefault(value.name, value)
            return FromComputation(list(values).index(value.name))

        def result_source(item: ResultSource) -> ResultSource:
            return source(self.trace.output[item.index]) if isinstance(item, FromComputation) else item

        results = tuple([result_source(item) for item in self.functionalized.results])
        arguments = tuple([source(proxy) for proxy in epilogue.inputs]) if epilogue else ()
        computation = replace(
            self.trace.with_symbols(symbols, provenance), output=tuple(values.values()), stage=Stage.EXECUTABLE
        )
        return Functionalized(without_dead_code(computation), epilogue, arguments, results)

    def _superfluous(self, bound: BoundSymbol) -> bool:
        """Views that exist already, and new data for a tensor that has it already."""
        memory = self.memory
        if bound.symbol.target is operations.with_data:
            tensor, data = bound.args
            output = bound.outputs()[0]
            if memory.same(tensor.name, data.name):
                memory.rename(output.name, tensor.name)
                return True
            return False
        names = [proxy.name for proxy in bound.outputs()]
        replays = self.functionalized.replays
        if not names or not all(name in replays and memory.same_view(name, replays[name]) for name in names):
            return False
        for name in names:
            memory.rename(name, replays[name])
        return True

    def _epilogue(self) -> Trace | None:
        epilogue = self.functionalized.epilogue
        if epilogue is None:
            return None
        kept = [bound for bound in epilogue.symbols if not self._done(bound)]
        if not kept and not epilogue.output:
            return None
        used = {proxy.name for bound in kept for proxy in bound.inputs()} | {p.name for p in epilogue.output}
        inputs = tuple(proxy for proxy in epilogue.inputs if proxy.name in used)
        return replace(epilogue.with_symbols(kept, epilogue.provenance), inputs=inputs)

    def _done(self, bound: BoundSymbol) -> bool:
        """Whether a write of the epilogue happened in the computation."""
        if not bound.effects.mutates:
            return False
        target, value = bound.args[:2]
        return isinstance(target, TensorProxy) and self.memory.same_view(value.name, target.name)


def _original(line: BoundSymbol, mutation: Mutation) -> BoundSymbol | None:
    """The in-place call with the arguments that ``line`` has now; None when that is no longer its functional form."""
    if line.symbol is not mutation.functional:
        return None
    if line.symbol is mutation.original.symbol.functional:
        return replace(mutation.original, args=line.args, kwargs=line.kwargs)
    args, kwargs = line.args[-2:]
    return replace(mutation.original, args=args, kwargs=kwargs)


@dataclass(frozen=True)
class ReinplaceParts(Pass[Functionalized]):
    """`Reinplace` for writes of parts, such as one position of a cache, so that regions can have them.

    A compiled region makes new values, which for a part of some memory would mean to copy all of it. Put back, such a
    write is a line that an executor can take into a region as what it is: the kernel that computes the key of a token
    stores it into the cache. Whoever reads what the call returned reads the argument that it wrote.

    Memory that other in-place calls write as a whole is left to `Reinplace`, after executors have fused these calls.

    Attributes:
        functionalized: as for `Reinplace`.
    """

    name: ClassVar[str] = "ReinplaceParts"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL, Stage.EXECUTABLE})

    functionalized: Functionalized

    def run(self, trace: Trace, context: PassContext) -> Functionalized:
        """The program, of the executable stage if it writes memory again; `Reinplace` has the other in-place calls."""
        given = replace(self.functionalized, computation=trace)
        alone = _alone(given)
        if not alone:
            return given
        result = with_writes(replace(given, mutations=alone), self.name, by_argument=True)
        if _renamed(result):
            return given
        left = tuple([mutation for mutation in given.mutations if all(mutation is not other for other in alone)])
        return replace(result, mutations=left, replays=given.replays)

    def traces(self, result: Functionalized) -> tuple[Trace, ...]:
        return result.traces


def _renamed(functionalized: Functionalized) -> bool:
    """Whether a value that the epilogue still copies has another name now: then not all writes of it were put back."""
    epilogue, computation = functionalized.epilogue, functionalized.computation
    names = {proxy.name for proxy in (*computation.inputs, *computation.output)}
    return epilogue is not None and not names.issuperset([proxy.name for proxy in epilogue.inputs])


def _alone(functionalized: Functionalized) -> tuple[Mutation, ...]:
    """Writes of parts of memory that has no gradient and that is written in no other way."""
    trace, partial = functionalized.computation, functionalized.partial_writes
    values = [*trace.inputs, *[proxy for line in trace.symbols for proxy in line.outputs()]]
    tensors = {proxy.name: proxy for proxy in values if isinstance(proxy, TensorProxy)}
    found: list[tuple[Mutation, set[int]]] = []
    others: set[int] = set()
    for mutation in functionalized.mutations:
        written = [tensors[name] for item in mutation.written for name in item if name in tensors]
        storages = {proxy.storage for proxy in written}
        if partial.isdisjoint(mutation.lines) or any(proxy.requires_grad for proxy in written):
            others |= storages
        else:
            found.append((mutation, storages))
    while True:
        kept = [item for item in found if others.isdisjoint(item[1])]
        if len(kept) == len(found):
            return tuple([mutation for mutation, _ in found])
        others.update(*[storages for _, storages in found if not others.isdisjoint(storages)])
        found = kept
