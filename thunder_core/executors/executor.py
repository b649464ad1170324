"""The interface of executors: which lines one runs, how these are differentiated, and the regions that it compiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from thunder_core.errors import ExecutorError, ExecutorWarning, is_strict
from thunder_core.executors.compiled_regions import CompiledRegions
from thunder_core.executors.decision import Decision
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.tracing.user_frames import warn_user


@dataclass(frozen=True, slots=True)
class DerivativePair:
    """How an executor differentiates a line: two calls, which stand in the trace as they are.

    Neither may write to its arguments. Functions at the top level of a module are printed by their names; for others
    the trace is no program that can be saved.

    Attributes:
        forward: takes the line's arguments and returns ``(outputs, residuals)``: what the line returns, with the same
            shapes, strides, dtypes and devices, in new memory; and a tuple of whatever ``backward`` needs. Arguments
            and outputs that are among the residuals cost nothing to return. Numbers, strings and None among them must
            depend on metadata alone.
        backward: takes ``(residuals, cotangents, wanted)`` and returns a tuple of gradients. ``cotangents`` has an item
            for each tensor in ``outputs``: its gradient, with any strides, or None if it never gets one. ``wanted`` has
            a bool for each tensor among the line's arguments, in their order; so has the result a tensor for each that
            is True, with the shape and dtype of the argument, and None for the others. Backward runs again when the
            user retains the graph.
        fake: called like ``forward`` with fake tensors; gives tensors of the right metadata without computing. None:
            ``forward`` and ``backward`` themselves work on fake tensors, as calls of PyTorch and of custom operators
            with a fake implementation do. With ``fake``, gradients must have the strides of `torch.empty_like` of their
            arguments.
        pure: False if ``forward`` does more than to compute its results, like updating a state: it then runs once for
            each call of the program, and in order. Otherwise it may run again for backward where the partition finds
            that worthwhile, or a checkpoint requires it.
    """

    forward: Callable[..., tuple[Any, tuple[Any, ...]]]
    backward: Callable[..., tuple[Any, ...]]
    fake: Callable[..., tuple[Any, tuple[Any, ...]]] | None = None
    pure: bool = True


class Executor(ABC):
    """Base of all executors. They are hashable; equal executors decide equally.

    Attributes:
        name: in configurations, decisions and reports.
        takes_parts: whether it runs core-ATen operators. Then lines that no executor claims are lowered to these and
            offered again.
        rewrites: whether a claim of it can be a rewrite, or it rewrites patterns of several lines.
        composites: symbols with `Tag.COMPOSITE` that a claim of it is for. Programs are searched for these.
        claimed_symbols: the symbols that its claims are for; None where it has no list of them.
        fuses: whether it runs ops together, as regions: `partition` and `compile_regions` are called.
        varying_sizes: whether it takes ops with sizes that vary between calls (`thunder_core.ir.size.SizeExpr`). It is
            not offered these otherwise.
    """

    name: str
    takes_parts: bool = False
    rewrites: bool = False
    composites: frozenset[Symbol] = frozenset()
    claimed_symbols: frozenset[Symbol] | None = None
    fuses: bool = False
    varying_sizes: bool = False

    @abstractmethod
    def claim(self, bound: BoundSymbol) -> Decision:
        """Whether this executor runs ``bound``. A pure query: it changes nothing, and may be repeated."""

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The pair for a line that this executor claims. A pure query, cached for equal lines.

        None: the line is differentiated like any other, and the executor may still run what then stands in forward.
        """
        return None

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        """The line from values before its arguments, where it ends a pattern of several lines; None where it does not.

        A pure query, before differentiation, of executors with ``rewrites``. What the lines in between compute is
        dropped if nobody else reads it.

        Args:
            producers: the lines before this one, by the names of their results.

        Returns:
            A line with the same outputs, which have the same values and gradients. This executor claims it.
        """
        return None

    def for_parts(self, whole: BoundSymbol) -> Executor | None:
        """Who is offered the parts of a line that nobody claims whole; None where its parts are not for this one."""
        return self

    def unmatched(self, lines: Sequence[BoundSymbol]) -> list[str]:
        """For the report: a sentence about each pattern among its options that matches nothing in the program.

        Args:
            lines: all that the program has at some stage, and what they were taken apart into.
        """
        return []

    def partition(self, trace: Trace, offers: Sequence[int]) -> Sequence[Sequence[int]]:
        """The regions of an executor with ``fuses``: ops that it runs together, as one call.

        A pure query, after all executors were offered all ops; repeated if a later executor hands ops
        back by a rewrite. Ops that are in no region run by themselves, as their claims say.

        Args:
            trace: the program. Regions of executors earlier in the list are single ops of it.
            offers: sorted positions in ``trace.symbols`` of what this executor claimed. These ops work on tensors, and
                have no other effects than writes in place.

        Returns:
            For each region its positions, sorted, all of them from ``offers`` and of ops with the same context, in no
            other region. There must be an order in which the program can run with all ops of a region at once:
            `thunder_core.passes.dependencies` says what waits for what. What breaks these rules is taken for a
            decline of all that is offered, with a warning.
        """
        return ()

    def compile_regions(self, regions: Sequence[Trace]) -> CompiledRegions:
        """Compile what `partition` returned, for forward and backward together.

        Args:
            regions: a trace for each region. Its inputs are what the region reads; its output is the tuple of what
                others read of it, tensors that share memory neither with its inputs nor with each other: views are
                taken outside. It is functional but for ops that write inputs in place. Parts say of each op what it may
                be lowered to.

        Returns:
            For each region what is called in its place, with its inputs, in order, followed by the sizes that vary
            (`Trace.sizes`). It returns the outputs with the
            shapes, strides, dtypes and devices that the trace says, and writes as PyTorch does: version counters grow.
            Or the reason for which the region is refused; its ops are then offered to the executors after this one.
        """
        raise NotImplementedError(f"{self.name} compiles no regions")


def fusing(executors: Sequence[Executor]) -> frozenset[str]:
    """Names of the executors that fuse."""
    return frozenset([executor.name for executor in executors if executor.fuses])


@lru_cache(maxsize=4096)
def executor_symbol(
    function: Callable[..., Any], executor: str, tags: frozenset[Tag] = frozenset(), reference: Symbol | None = None
) -> Symbol:
    """The symbol of one of an executor's functions, which does the work of ``reference``; the same for equal calls.

    A function at the top level of a module is printed by its name. For any other the trace cannot be saved.
    """
    path = import_path(function)
    if path is not None:
        return Symbol(".".join(path), function, tags=tags, executor=executor, reference=reference)
    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else f"{executor}_call"
    return Symbol(name, function, tags=tags | {Tag.LOCAL}, executor=executor, reference=reference)


def declined_by_failing(
    executor: str, what: str, step: str, location: SourceLocation | None, error: BaseException | str
) -> str:
    """The reason for which ``what`` is declined then; there is a warning.

    Args:
        executor: its name.
        what: it was queried about.
        step: of the executor, that failed.
        error: what it raised, or what is wrong with what it returned.

    Raises:
        ExecutorError: ``THUNDER_STRICT=1``.
    """
    told = error if isinstance(error, str) else f"failed with {type(error).__name__}: {error}"
    problem = f"its {step} {told}"
    if is_strict():
        cause = None if isinstance(error, str) else error
        raise ExecutorError(f"{executor}: {what}: {problem}", location=location) from cause
    warn_user(f"{executor} declines {what}: {problem}", ExecutorWarning)
    return problem
