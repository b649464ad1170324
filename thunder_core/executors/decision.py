"""Decisions of executors about ops: claimed, or declined with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_core.ir.symbol import Symbol


@dataclass(frozen=True, slots=True)
class Claimed:
    """The executor runs the op.

    Attributes:
        executor: its name.
        implementation: the symbol that is called instead, with the same arguments; None for the op's symbol itself.
        rewrite: called with the same arguments; the torch functions that it calls replace the op, and each of them is
            offered to the executors.
        variant: the chosen one of the executor's implementations, if it has several. For reports.
        passed_over: preferred implementations that do not apply, with the reasons. For reports.
    """

    executor: str
    implementation: Symbol | None = None
    rewrite: Callable[..., Any] | None = None
    variant: str = ""
    passed_over: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """The executor does not run the op, for a reason.

    Attributes:
        executor: its name.
        reason: for people; after "declined, because".
        implements: whether it implements the symbol for other arguments. The option ``on_decline`` applies only then.
        failed: whether it declined because an error occurred.
    """

    executor: str
    reason: str
    implements: bool = True
    failed: bool = False


Decision = Claimed | Declined
