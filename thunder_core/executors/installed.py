"""The executors that there are, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from thunder_core.executors.executor import Executor
from thunder_core.executors.reference import REFERENCE

INSTALLED: Final[dict[str, Executor]] = {REFERENCE.name: REFERENCE}
"""What may be named in the option ``executors``."""


def resolve_executors(names: Sequence[str] | None) -> tuple[Executor, ...]:
    """The executors of these names, in that order; for None the default. The reference executor follows them anyway.

    Raises KeyError for a name that is not in `INSTALLED`; the options check that before.
    """
    return tuple([INSTALLED[name] for name in names or ()])
