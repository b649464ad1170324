"""Checks that a program fits into its budget of memory."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from thunder_core.errors import MemoryBudgetError
from thunder_core.ir.lifetimes import Peak, peak_of
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Pass, PassContext

_SHOWN: Final = 3


@dataclass(frozen=True)
class CheckMemory(Pass[Trace]):
    """Refuses a program without a separate backward that needs more memory than its budget; there is no choice.

    Attributes:
        budget: in bytes, for the inputs of the program and all values that it computes.
    """

    name: ClassVar[str] = "CheckMemory"

    budget: int

    def run(self, trace: Trace, context: PassContext) -> Trace:
        """The trace itself. Raises MemoryBudgetError if it needs more than the budget."""
        programs = {"the program": trace}
        peak = peak_of(programs)
        if peak.bytes > self.budget:
            raise does_not_fit(self.budget, peak, programs)
        return trace


def does_not_fit(
    budget: int, peak: Peak, programs: Mapping[str, Trace], returned: Container[str] | None = None
) -> MemoryBudgetError:
    """The error for programs that need at least the memory of ``peak``.

    Args:
        programs, returned: the arguments of `thunder_core.ir.lifetimes.peak_of` for it.
    """
    largest = peak.storages(programs, returned)[:_SHOWN]
    named = ", ".join(f"{each.name} of {each.bytes:,}" for each in largest)
    where = f"in {peak.program}" if len(programs) > 1 else "at its peak"
    return MemoryBudgetError(
        f"memory={budget}, but the program needs at least {peak.bytes:,} bytes",
        least=peak.bytes,
        location=peak.location,
        advice=(
            f"{where}, {peak.inputs:,} bytes are parameters, buffers and other inputs, and "
            f"{peak.bytes - peak.inputs:,} bytes are computed" + (f": the largest values are {named}" if named else ""),
            f"set memory to at least {peak.bytes}, or make the batch smaller",
        ),
    )
