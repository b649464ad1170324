"""The reference executor: each symbol runs as the PyTorch function that it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from thunder_core.executors.decision import Claimed, Decision
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol

_CLAIMED: Final = Claimed("reference")


@dataclass(frozen=True)
class ReferenceExecutor(Executor):
    """Claims everything. It ends every list of executors and needs no plugin."""

    name: str = "reference"
    varying_sizes = True

    def claim(self, bound: BoundSymbol) -> Decision:
        """Always claimed, as the symbol itself."""
        return _CLAIMED


REFERENCE: Final = ReferenceExecutor()


def reference(options: Any) -> ReferenceExecutor:
    """The reference executor, which has no options."""
    return REFERENCE
