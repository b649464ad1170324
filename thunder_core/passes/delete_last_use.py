"""Free values after their last use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Pass, PassContext


@dataclass(frozen=True)
class DeleteLastUse(Pass[Trace]):
    """Fills `Trace.deletions`: each computed value is deleted after the last op that uses it.

    Deleting a name is always safe, even if views of the value remain: a storage is freed with its last reference.
    Returned values are not deleted. An input is deleted too, unless it is never used; whether that frees it depends on
    the caller's references. Nothing is deleted after the last op, since the function returns.
    """

    name: ClassVar[str] = "DeleteLastUse"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return with_deletions(trace, self.name)


def with_deletions(trace: Trace, provenance: str = DeleteLastUse.name) -> Trace:
    """The trace with the deletions that `DeleteLastUse` fills in, in place of those that it has."""
    seen = {proxy.name for proxy in iterate_proxies(trace.output)}
    deletions: dict[int, tuple[str, ...]] = {}
    last = len(trace.symbols) - 1
    for index in range(last, -1, -1):
        bound = trace.symbols[index]
        dying: list[str] = []
        for proxies in (bound.outputs(), bound.inputs()):
            for proxy in proxies:
                if proxy.name not in seen:
                    seen.add(proxy.name)
                    dying.append(proxy.name)
        if dying and index != last:
            deletions[index] = tuple(dying)
    return replace(trace, deletions=deletions, provenance=provenance)
