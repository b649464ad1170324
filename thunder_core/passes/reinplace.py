"""Restore in-place ops whose old value no later op reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.passes import operations
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromInput,
    Functionalized,
    Mutation,
    ResultSource,
    WrittenArgument,
)
from thunder_core.passes.moved_storages import MovedStorages


class _StorageMap:
    """Merged storages and renamed values.

    Attributes:
        proxies: every value of the functional trace, by name.
        definitions: the index of the op that defines a name.
    """

    def __init__(self, trace: Trace) -> None:
        self.proxies: dict[str, Proxy] = {proxy.name: proxy for proxy in trace.inputs}
        self.definitions: dict[str, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._moved = MovedStorages()
        self._members: dict[int, list[int]] = {}
        self._names: dict[str, str] = {}
        self._final: dict[str, Proxy] = {}
        for index, bound in enumerate(trace.symbols):
            # `with_data` reads the gradient of its first argument, not its storage
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
        """Indices of ops that read the current value of ``name``'s storage; the number of ops for the return."""
        storage = self._storage(name)
        numbers = self._members.get(storage, [storage])
        return [op for number in numbers for op in self._readers.get(number, ())]

    def overwrite(self, name: str) -> None:
        """Clear the readers of the storage's value, none of which comes after the write."""
        self._members[self._storage(name)] = []

    def same(self, one: str, other: str) -> bool:
        """Whether two values share storage."""
        return self._storage(one) == self._storage(other)

    def same_view(self, one: str, other: str) -> bool:
        """Whether two values have the same storage, dtype and geometry."""
        if one not in self.proxies or other not in self.proxies:
            return False
        left, right = self.value(self.proxies[one]), self.value(self.proxies[other])
        if not isinstance(left, TensorProxy) or not isinstance(right, TensorProxy):
            return False
        return (left.storage, left.geometry, left.dtype) == (right.storage, right.geometry, right.dtype)

    def join(self, new: str, old: str) -> None:
        """Place the storage of ``new`` in that of ``old``, at the offset of ``old``."""
        value, place = self.proxies.get(new), self.proxies[old]
        if not isinstance(value, TensorProxy) or not isinstance(place, TensorProxy):
            return
        outer = self._storage(old)
        if self._storage(new) == outer:
            return
        self._moved.move(value, place)
        self._members.setdefault(outer, []).append(value.storage)

    def rename(self, name: str, to: str) -> None:
        """Later ops use ``to`` in place of ``name``."""
        self._names[name] = to

    def adopt(self, name: str, old: str, original: BoundSymbol) -> None:
        """Make ``name``, an output of a restored in-place op, the value ``old``."""
        place = self.proxies[old]
        output = next(proxy for proxy in original.outputs() if proxy.name == name)
        if isinstance(place, TensorProxy) and isinstance(output, TensorProxy):
            self.proxies[name] = replace(output, storage=place.storage, offset=place.offset)
            self._final.pop(name, None)

    def value(self, proxy: Proxy) -> Proxy:
        """The value that replaces one of the functional trace."""
        name = proxy.name
        while name in self._names:
            name = self._names[name]
        final = self._final.get(name)
        if final is None:
            final = self._final[name] = self._moved.value(self.proxies[name])
        return final

    def op(self, bound: BoundSymbol) -> BoundSymbol:
        """An op with all its values replaced."""
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
        return isinstance(proxy, TensorProxy) and self._moved.value(self.proxies[proxy.name]) is not proxy

    def _leaf(self, leaf: Any) -> Any:
        return self.value(leaf) if isinstance(leaf, PROXY_TYPES) else leaf

    def _output(self, leaf: Any) -> Any:
        return self._moved.value(self.proxies[leaf.name]) if isinstance(leaf, PROXY_TYPES) else leaf

    def _storage(self, name: str) -> int:
        """The number of the storage that contains a tensor; -1 for other values."""
        proxy = self._moved.value(self.proxies[name])
        return proxy.storage if isinstance(proxy, TensorProxy) else -1


@dataclass(frozen=True)
class Reinplace(Pass[Functionalized]):
    """Turns the functional form of an in-place op back into that op if the old value is dead after it.

    The restored op is exactly the program's, on the same storage and after the same ops: values, aliasing and autograd
    history are those of eager. Writes to inputs then happen in the computation, and the epilogue does not copy. Run
    `DeadCode` before, so that unused ops do not count as readers.

    Attributes:
        functionalized: the result of functionalization. The pass runs on its computation, as later passes
            changed it.
    """

    name: ClassVar[str] = "Reinplace"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL, Stage.EXECUTABLE})

    functionalized: Functionalized

    def run(self, trace: Trace, context: PassContext) -> Functionalized:
        """The program with fewer copies; its computation is of the executable stage if it has in-place ops."""
        given = replace(self.functionalized, computation=trace)
        return _with_writes(given, self.name) if given.mutations else given

    def traces(self, result: Functionalized) -> tuple[Trace, ...]:
        return result.traces


def _with_writes(functionalized: Functionalized, provenance: str, *, by_argument: bool = False) -> Functionalized:
    """The program with its in-place ops restored if the old value is dead after them; of the executable stage.

    Args:
        by_argument: later ops use the written argument's name instead of the name of the op's result.
    """
    rewriting = _Rewriting(functionalized, by_argument)
    for mutation in functionalized.mutations:
        rewriting.restore(mutation)
    return rewriting.result(provenance)


class _Rewriting:
    """Restores the mutations that functionalization recorded, in their order.

    There is nothing for the rewrite engine to match: the mutation names its ops. Whether one may be restored depends on
    the storages that those before it joined, and all later ops, the results and the epilogue get other values.
    """

    def __init__(self, functionalized: Functionalized, by_argument: bool) -> None:
        self.functionalized = functionalized
        self.by_argument = by_argument
        self.trace = functionalized.computation
        self.storages = _StorageMap(self.trace)
        self.restored: dict[int, BoundSymbol] = {}
        self.dropped: set[int] = set()
        guesses = [index for index, bound in enumerate(self.trace.symbols) if Tag.GUESS in bound.symbol.tags]
        self.last_guess = max(guesses, default=-1)

    # ---- selection ---------------------------------------------------------------------------------------------------

    def restore(self, mutation: Mutation) -> None:
        """Restore one in-place op if that is safe."""
        storages = self.storages
        ops = {storages.definitions[name] for name in mutation.ops if name in storages.definitions}
        position = storages.definitions.get(mutation.ops[0])
        if position is not None and position < self.last_guess:  # another program may have to run from the same inputs
            return
        if position is None or not all(self._dead_after(item, position, ops) for item in mutation.written):
            return
        original = _original(self.trace.symbols[position], mutation)
        if original is None:
            return
        self.dropped |= ops
        self.restored[position] = original
        for item in mutation.written:
            storages.overwrite(item.before)
        by_position = {index: name for name, index in mutation.objects.items()}
        for index, (old, new, whole_before, whole_after) in enumerate(mutation.written):
            storages.join(new, old)
            if new in storages.proxies and new not in mutation.objects:
                storages.rename(new, by_position.get(index, old))
            if whole_after != new and whole_after in storages.proxies:
                storages.join(whole_after, whole_before)
                storages.rename(whole_after, whole_before)
        for name, index in mutation.objects.items():
            storages.adopt(name, mutation.written[index].before, original)
            if self.by_argument:
                storages.rename(name, mutation.written[index].before)

    def _dead_after(self, written: WrittenArgument, position: int, ops: set[int]) -> bool:
        old, whole, storages = written.before, written.whole_before, self.storages
        if old not in storages.proxies or whole not in storages.proxies:
            return False
        if not storages.same(old, whole):
            return False
        return all(reader <= position or reader in ops for reader in storages.readers(old))

    # ---- rewriting -----------------------------------------------------------------------------------------------

    def result(self, provenance: str) -> Functionalized:
        symbols: list[BoundSymbol] = []
        for index, bound in enumerate(self.trace.symbols):
            original = self.restored.get(index)
            if original is not None:
                symbols.append(self.storages.op(original))
            elif index not in self.dropped and not self._replaced_by_existing(bound):
                symbols.append(self.storages.op(bound))
        epilogue = self._epilogue()
        values: dict[str, Proxy] = {}
        inputs = {proxy.name: index for index, proxy in enumerate(self.trace.inputs)}

        def source(proxy: Proxy) -> FromInput | FromComputation:
            value = self.storages.value(proxy)
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

    def _replaced_by_existing(self, bound: BoundSymbol) -> bool:
        """Whether an op repeats an existing view or assigns a tensor its current data. If so, rename its results."""
        storages = self.storages
        if bound.symbol.target is operations.with_data:
            tensor, data = bound.args
            output = bound.outputs()[0]
            if storages.same(tensor.name, data.name):
                storages.rename(output.name, tensor.name)
                return True
            return False
        names = [proxy.name for proxy in bound.outputs()]
        regenerated = self.functionalized.regenerated
        if not names or not all(name in regenerated and storages.same_view(name, regenerated[name]) for name in names):
            return False
        for name in names:
            storages.rename(name, regenerated[name])
        return True

    def _epilogue(self) -> Trace | None:
        epilogue = self.functionalized.epilogue
        if epilogue is None:
            return None
        remaining = [bound for bound in epilogue.symbols if not self._done(bound)]
        if not remaining and not epilogue.output:
            return None
        used = {proxy.name for bound in remaining for proxy in bound.inputs()} | {p.name for p in epilogue.output}
        inputs = tuple(proxy for proxy in epilogue.inputs if proxy.name in used)
        return replace(epilogue.with_symbols(remaining, epilogue.provenance), inputs=inputs)

    def _done(self, bound: BoundSymbol) -> bool:
        """Whether the computation already performs this write of the epilogue."""
        if not bound.effects.mutates:
            return False
        target, value = bound.args[:2]
        return isinstance(target, TensorProxy) and self.storages.same_view(value.name, target.name)


def _original(op: BoundSymbol, mutation: Mutation) -> BoundSymbol | None:
    """The in-place op with the current arguments and modes of ``op``; None if that is no longer its functional form."""
    if op.symbol is not mutation.functional:
        return None
    original = mutation.original
    if op.symbol is original.symbol.functional:
        return replace(original, args=op.args, kwargs=op.kwargs, context=op.context)
    of_copies = op.symbol.target is operations.functional_call
    if of_copies and op.args[0] is not original.symbol.target:  # a derivative put another function in its place
        return None
    args, kwargs = op.args[-2:]
    return replace(original, args=args, kwargs=kwargs, context=op.context)


@dataclass(frozen=True)
class ReinplaceParts(Pass[Functionalized]):
    """`Reinplace` for partial writes, such as to one position of a cache, before executors form regions.

    A compiled region returns new values; for a partial write it would have to copy the whole storage. The restored
    in-place op can be part of a region: the kernel that computes the key of a token stores it into the cache. Later ops
    use the written argument instead of the op's result.

    Storages that other in-place ops write as a whole are left to `Reinplace`, after executors fused these ops.

    Attributes:
        functionalized: as for `Reinplace`.
    """

    name: ClassVar[str] = "ReinplaceParts"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL, Stage.EXECUTABLE})

    functionalized: Functionalized

    def run(self, trace: Trace, context: PassContext) -> Functionalized:
        """The program, of the executable stage if an op was restored; `Reinplace` restores the others."""
        given = replace(self.functionalized, computation=trace)
        alone = _alone(given)
        if not alone:
            return given
        result = _with_writes(replace(given, mutations=alone), self.name, by_argument=True)
        if _renamed(result):
            return given
        left = tuple([mutation for mutation in given.mutations if all(mutation is not other for other in alone)])
        return replace(result, mutations=left, regenerated=given.regenerated)

    def traces(self, result: Functionalized) -> tuple[Trace, ...]:
        return result.traces


def _renamed(functionalized: Functionalized) -> bool:
    """Whether a value that the epilogue still copies was renamed: then not all its writes were restored."""
    epilogue, computation = functionalized.epilogue, functionalized.computation
    names = {proxy.name for proxy in (*computation.inputs, *computation.output)}
    return epilogue is not None and not names.issuperset([proxy.name for proxy in epilogue.inputs])


def _alone(functionalized: Functionalized) -> tuple[Mutation, ...]:
    """The partial writes to storages that do not require grad and have no other writes."""
    trace, partial = functionalized.computation, functionalized.partial_writes
    values = [*trace.inputs, *[proxy for op in trace.symbols for proxy in op.outputs()]]
    tensors = {proxy.name: proxy for proxy in values if isinstance(proxy, TensorProxy)}
    candidates: list[tuple[Mutation, set[int]]] = []
    others: set[int] = set()
    for mutation in functionalized.mutations:
        written = [tensors[name] for item in mutation.written for name in item if name in tensors]
        storages = {proxy.storage for proxy in written}
        if partial.isdisjoint(mutation.ops) or any(proxy.requires_grad for proxy in written):
            others |= storages
        else:
            candidates.append((mutation, storages))
    while True:
        remaining = [item for item in candidates if others.isdisjoint(item[1])]
        if len(remaining) == len(candidates):
            return tuple([mutation for mutation, _ in candidates])
        others.update(*[storages for _, storages in candidates if not others.isdisjoint(storages)])
        candidates = remaining
