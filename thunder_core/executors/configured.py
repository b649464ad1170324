"""An executor as a configuration asks for it: for some symbols only, and with a rule for what it declines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from thunder_core.errors import ExecutorError, ExecutorWarning
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.derivative_pair import DerivativePair
from thunder_core.executors.executor import Executor, FusionExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol


@dataclass(frozen=True)
class ConfiguredExecutor(Executor):
    """`executor`, asked only for symbols that the patterns let through.

    Attributes:
        include, exclude: patterns of symbol names with ``*`` and ``?``, like ``"*softmax*"`` or
            ``"torch.nn.functional.*"``. An empty ``include`` includes everything.
        on_decline: what to do when the executor runs the operation, but not this call of it: ask the ``"next"`` one,
            do so after a warning (``"warn"``), or raise ("error").
    """

    executor: Executor
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    on_decline: Literal["next", "warn", "error"] = "next"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The executor's."""
        return self.executor.name

    @property
    def takes_parts(self) -> bool:  # type: ignore[override]
        """As the executor."""
        return self.executor.takes_parts

    @property
    def rewrites(self) -> bool:  # type: ignore[override]
        """As the executor."""
        return self.executor.rewrites

    @property
    def composites(self) -> frozenset[Symbol]:  # type: ignore[override]
        """The executor's, as far as the configuration lets them through."""
        own = self.executor.composites
        return frozenset([symbol for symbol in own if _exclusion(symbol.name, self.include, self.exclude) is None])

    @property
    def fusion(self) -> FusionExecutor | None:
        """As the executor."""
        return self.executor.fusion

    def claim(self, bound: BoundSymbol) -> Decision:
        """The executor's answer; what the configuration excludes is declined."""
        excluded = _exclusion(bound.symbol.name, self.include, self.exclude)
        return self.executor.claim(bound) if excluded is None else Declined(self.name, excluded, implements=False)

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The executor's."""
        return self.executor.derivative(bound)

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        """The executor's answer, where the configuration lets the line's symbol through."""
        excluded = _exclusion(bound.symbol.name, self.include, self.exclude)
        return self.executor.rewritten(bound, producers) if excluded is None else None

    def report(self, bound: BoundSymbol, answer: Decision) -> None:
        """Warn or raise about a decline, if the configuration asks for it."""
        if self.on_decline == "next" or isinstance(answer, Claimed) or not answer.implements:
            return
        problem = f"{self.name} declined {bound.symbol.name}, because {answer.reason}"
        if self.on_decline == "error":
            raise ExecutorError(
                problem, location=bound.location, advice=("on_decline: next lets the next executor run it",)
            )
        where = f" at {bound.location.describe()}" if bound.location is not None else ""
        warnings.warn(problem + where, ExecutorWarning, stacklevel=2)


@lru_cache(maxsize=4096)
def _exclusion(name: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> str | None:
    """Why the patterns keep a symbol out; None if they do not."""
    for pattern in exclude:
        if fnmatchcase(name, pattern):
            return f"the configuration excludes {pattern!r}"
    if include and not any(fnmatchcase(name, pattern) for pattern in include):
        return f"the configuration includes only {', '.join(map(repr, include))}"
    return None
