"""Restore in-place calls where no later line reads the old value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes import operations
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromInput,
    Functionalized,
    Mutation,
    ResultSource,
)
from thunder_core.passes.memory_map import MemoryMap


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
