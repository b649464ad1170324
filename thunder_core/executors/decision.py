"""Decisions of executors about lines: claimed, or declined with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_core.ir.symbol import Symbol


@dataclass(frozen=True, slots=True)
class Claimed:
    """The executor runs the line.

    Attributes:
        executor: its name.
        implementation: what is called instead, with the same arguments; None for the symbol itself.
        rewrite: called with the same arguments; the torch functions that it calls replace the line, and executors are
            asked for each of them.
        variant: which of its implementations it takes, where it has several. For reports.
        passed_over: implementations that it prefers, with the reasons for which they do not fit. For reports.
    """

    executor: str
    implementation: Symbol | None = None
    rewrite: Callable[..., Any] | None = None
    variant: str = ""
    passed_over: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """The executor does not run the line, and says why.

    Attributes:
        executor: its name.
        reason: for people; after "declined, because".
        implements: whether it runs the symbol otherwise: False where it has nothing for it at all. The option
            ``on_decline`` is about the others.
        failed: whether it tried, and something went wrong.
    """

    executor: str
    reason: str
    implements: bool = True
    failed: bool = False


Decision = Claimed | Declined
