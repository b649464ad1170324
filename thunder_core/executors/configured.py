"""An executor with the user's configuration: restricted to some symbols, and with a policy for declined ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from thunder_core.errors import ExecutorError, ExecutorWarning
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import CompiledRegions, DerivativePair, Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import at
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.symbols.operation_names import called_symbol, matches, names_of
from thunder_core.tracing.frames import warn_user


@dataclass(frozen=True)
class ConfiguredExecutor(Executor):
    """`executor`, restricted to ops whose symbols match the patterns.

    Attributes:
        include, exclude: patterns of names of operations with ``*`` and ``?``, like ``"*softmax*"`` or
            ``"torch.nn.functional.*"``. They match any name of an operation, see
            `thunder_core.symbols.operation_names`. An empty ``include`` includes everything.
        on_decline: the policy if the executor implements the operation but declines this call: offer it to the
            ``"next"`` executor, do so after a warning (``"warn"``), or raise (``"error"``).
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
        """The executor's, including excluded ones, so that ``explain`` can report the excluding pattern."""
        return self.executor.composites

    @property
    def claimed_symbols(self) -> frozenset[Symbol] | None:  # type: ignore[override]
        """The executor's."""
        return self.executor.claimed_symbols

    @property
    def varying_sizes(self) -> bool:  # type: ignore[override]
        """As the executor's."""
        return self.executor.varying_sizes

    @property
    def fuses(self) -> bool:  # type: ignore[override]
        """As the executor."""
        return self.executor.fuses

    def claim(self, bound: BoundSymbol) -> Decision:
        """The executor's decision; a decline for excluded symbols."""
        excluded = self._exclusion(bound)
        if excluded is None:
            return self.executor.claim(bound)
        claimed = self.executor.claimed_symbols
        return Declined(self.name, excluded, implements=claimed is None or bound.symbol in claimed)

    def for_parts(self, whole: BoundSymbol) -> Executor | None:
        """Patterns that match an op apply to its parts as well."""
        names = _names_of_op(whole)
        if any(matches(pattern, names) for pattern in self.exclude):
            return None
        if any(matches(pattern, names) for pattern in self.include):
            return replace(self, include=())
        return self

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The executor's."""
        return self.executor.derivative(bound)

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        """The executor's rewrite, unless the configuration excludes the op's symbol."""
        return self.executor.rewritten(bound, producers) if self._exclusion(bound) is None else None

    def partition(self, trace: Trace, offers: Sequence[int]) -> Sequence[Sequence[int]]:
        """As the executor does."""
        return self.executor.partition(trace, offers)

    def compile_regions(self, regions: Sequence[Trace]) -> CompiledRegions:
        """As the executor does."""
        return self.executor.compile_regions(regions)

    def compiling_behind(self) -> ConfiguredExecutor:
        """As the executor, with the same configuration."""
        return replace(self, executor=self.executor.compiling_behind())

    def report(self, bound: BoundSymbol, decision: Decision) -> None:
        """Warn or raise about a decline according to ``on_decline``, unless the patterns exclude the op."""
        if self.on_decline == "next" or isinstance(decision, Claimed) or not decision.implements:
            return
        if self._exclusion(bound) is not None:
            return
        problem = f"{self.name} declined {bound.symbol.name}, because {decision.reason}"
        if self.on_decline == "error":
            raise ExecutorError(
                problem, location=bound.location, advice=("on_decline: next lets the next executor run it",)
            )
        warn_user(problem + at(bound.location, " at "), ExecutorWarning)

    def unmatched(self, ops: Sequence[BoundSymbol]) -> list[str]:
        """Sentences about unmatched patterns of the configuration and of the executor's options."""
        of_options = self.executor.unmatched(ops)
        if not self.include and not self.exclude:
            return of_options
        names = {name for op in ops for name in _names_of_op(op)}
        return of_options + [
            f"{option} of {self.name}: the pattern {pattern!r} matches no operation of this program"
            for option, patterns in (("include", self.include), ("exclude", self.exclude))
            for pattern in dict.fromkeys(patterns)
            if not matches(pattern, names)
        ]

    def _exclusion(self, op: BoundSymbol) -> str | None:
        """The reason why the patterns exclude an op; None if they do not."""
        if not self.include and not self.exclude:
            return None
        return _exclusion(_names_of_op(op), self.include, self.exclude)


def _names_of_op(op: BoundSymbol) -> tuple[str, ...]:
    """The names of an op's symbol, and of the function that it calls."""
    called = called_symbol(op)
    return names_of(op.symbol) if called is op.symbol else (*names_of(op.symbol), *names_of(called))


@lru_cache(maxsize=4096)
def _exclusion(names: tuple[str, ...], include: tuple[str, ...], exclude: tuple[str, ...]) -> str | None:
    """The reason why the patterns exclude the operation with these names; None if they do not."""
    for pattern in exclude:
        if matches(pattern, names):
            return f"the configuration excludes {pattern!r}"
    if include and not any(matches(pattern, names) for pattern in include):
        return f"the configuration includes only {', '.join(map(repr, include))}"
    return None
