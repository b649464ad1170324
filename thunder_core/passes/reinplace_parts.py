"""Give in-place calls that write a part of a storage back that storage, before executors claim lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.functionalize.result import Functionalized, Mutation
from thunder_core.passes.reinplace import with_writes


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
