"""What the batteries compile programs with, by name; picklable, so that worker processes can be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Compile = Callable[[Any], Any]


def eager(function: Any) -> Any:
    """No compilation at all: what a battery says about this, it says about itself."""
    return function


def reference(function: Any) -> Any:
    """The reference executor alone."""
    import thunder

    return thunder.jit(function, executors=[])


def default(function: Any) -> Any:
    """The best that is installed."""
    import thunder

    return thunder.jit(function)


SUBJECTS: dict[str, Compile] = {subject.__name__: subject for subject in (eager, reference, default)}
