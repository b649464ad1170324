"""The reference executor: runs each op as a call of its symbol's target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from thunder_core.executors.decision import Claimed, Decision
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol

_CLAIMED: Final = Claimed("reference")


@dataclass(frozen=True)
class ReferenceExecutor(Executor):
    """Claims every op. It is the last of every list of executors and needs no plugin."""

    name: str = "reference"
    varying_sizes = True

    def claim(self, bound: BoundSymbol) -> Decision:
        """A claim of the op with its own symbol."""
        return _CLAIMED


REFERENCE: Final = ReferenceExecutor()


def reference(options: Any) -> ReferenceExecutor:
    """The reference executor, which has no options."""
    return REFERENCE
