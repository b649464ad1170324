"""The interface of executors: claims of ops, derivatives of claimed ops, and regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from thunder_core.errors import ExecutorError, ExecutorWarning, is_strict
from thunder_core.executors.decision import Decision
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.tracing.frames import warn_user


@dataclass(frozen=True, slots=True)
class DerivativePair:
    """The forward and backward functions by which an executor differentiates an op; both become ops of the trace.

    Neither may write to its arguments. Functions at the top level of a module are printed by name; a trace with other
    functions cannot be saved.

    Attributes:
        forward: takes the op's arguments and returns ``(outputs, residuals)``: the results of the op, with the same
            shapes, strides, dtypes and devices, in new storages; and a tuple of the values that ``backward`` needs.
            Arguments and outputs among the residuals need no further memory. Numbers, strings and None among them must
            depend on metadata alone.
        backward: takes ``(residuals, cotangents, wanted)`` and returns a tuple of gradients. ``cotangents`` has an item
            for each tensor in ``outputs``: its gradient, with any strides, or None if it never gets one. ``wanted`` has
            a bool for each tensor among the op's arguments, in order. The result has as many items: a tensor with the
            shape and dtype of the argument where the bool is True, else None. Backward may run several times if the
            user retains the graph.
        fake: called like ``forward`` with fake tensors; returns tensors of the right metadata without computing. None:
            ``forward`` and ``backward`` themselves work on fake tensors, as calls of PyTorch and of custom operators
            with a fake implementation do. With ``fake``, gradients must have the strides of `torch.empty_like` of their
            arguments.
        pure: False if ``forward`` has effects, such as updating a state: it then runs once for each call of the
            program, in order. A pure one may be recomputed in backward if the partition or a checkpoint decides so.
    """

    forward: Callable[..., tuple[Any, tuple[Any, ...]]]
    backward: Callable[..., tuple[Any, ...]]
    fake: Callable[..., tuple[Any, tuple[Any, ...]]] | None = None
    pure: bool = True


RegionCall = Callable[..., Sequence[Any]]
"""Called with the inputs of a region, in order; returns its outputs, in a tuple or a list.

It may have these methods: ``generated_code() -> str``, the code that runs, for people; ``settled() -> bool``, False
while later calls may run other code, so that nothing captures it; ``describe() -> str``, what runs it, for the report.
"""


class RegionError(Exception):
    """Raised by a compiled region where PyTorch's kernels raise an exception: they then run, to raise theirs."""


def problem_of_calls(calls: Any, count: int) -> str:
    """The defect of an executor's result for ``count`` regions, as text; empty if there is none.

    A valid result is a sequence with a function, or a reason as text, for each region.
    """
    fits = isinstance(calls, Sequence) and len(calls) == count
    if fits and all(callable(call) or isinstance(call, str) for call in calls):
        return ""
    return "did not return a function or a reason for each region"


@dataclass(frozen=True, slots=True)
class RegionCounts:
    """Counts of the regions of a compilation, for the report.

    Attributes:
        regions: number of regions.
        known: number of distinct regions compiled in this process before.
        read: number of distinct regions read from disk.
        compiled: number of distinct regions compiled now, or refused.
        notes: problems with compiled regions on disk, as sentences without duplicates.
    """

    regions: int = 0
    known: int = 0
    read: int = 0
    compiled: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: RegionCounts) -> RegionCounts:
        return RegionCounts(
            self.regions + other.regions,
            self.known + other.known,
            self.read + other.read,
            self.compiled + other.compiled,
            tuple(dict.fromkeys([*self.notes, *other.notes])),
        )


@dataclass(frozen=True, slots=True)
class CompiledRegions:
    """The result of `Executor.compile_regions`.

    Attributes:
        calls: for each region, in order, the compiled function; or, as text, the reason why the executor refuses it.
        counts: for the report.
    """

    calls: Sequence[RegionCall | str]
    counts: RegionCounts = RegionCounts()


class Executor(ABC):
    """Base of all executors. They are hashable; equal executors decide equally.

    Attributes:
        name: in configurations, decisions and reports.
        takes_parts: whether it claims core-ATen operators. Ops that no executor claims are then lowered to these and
            offered again.
        rewrites: whether one of its claims can be a rewrite, or it rewrites patterns of several ops.
        composites: symbols with `Tag.COMPOSITE` that it claims. Programs are searched for these.
        claimed_symbols: all symbols that it can claim; None if it has no such list.
        fuses: whether it runs ops together, as regions: `partition` and `compile_regions` are called.
        varying_sizes: whether it is offered ops with sizes that vary between calls (`thunder_core.ir.size.SizeExpr`).
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
        """The pair for an op that this executor claims. A pure query, cached for equal ops.

        None: the op is differentiated like any other, and the executor may still claim the resulting forward op.
        """
        return None

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        """The rewrite of a pattern of several ops that ends with ``bound``; None if no pattern matches.

        A pure query, before differentiation, of executors with ``rewrites``. The other ops of the pattern are removed
        if nothing else reads their results.

        Args:
            producers: the preceding ops, by the names of their results.

        Returns:
            An op with the same outputs, which have the same values and gradients. This executor claims it.
        """
        return None

    def for_parts(self, whole: BoundSymbol) -> Executor | None:
        """The executor that is offered the parts of an op that no executor claims whole; None for no executor."""
        return self

    def unmatched(self, ops: Sequence[BoundSymbol]) -> list[str]:
        """For the report: a sentence about each pattern among its options that matches nothing in the program.

        Args:
            ops: all ops that the program has at some stage, and their lowered forms.
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
            see `thunder_core.passes.dependencies`. A result that violates these rules counts as a decline of all
            offered ops, with a warning.
        """
        return ()

    def compile_regions(self, regions: Sequence[Trace]) -> CompiledRegions:
        """Compile what `partition` returned, for forward and backward together.

        Args:
            regions: a trace for each region. Its inputs are the values that the region reads; its output is the tuple
                of its results that others read. These tensors share storage neither with its inputs nor with each
                other: views are taken outside. It is functional except for ops that write inputs in place. The parts of
                each op are its lowered form.

        Returns:
            For each region the function that replaces it. It takes the inputs in order, followed by the varying sizes
            (`Trace.sizes`), and returns the outputs with the shapes, strides, dtypes and devices of the trace. Its
            writes increase version counters, as PyTorch's do. Or, as text, the reason why the region is refused; its
            ops are then offered to the executors after this one.
        """
        raise NotImplementedError(f"{self.name} compiles no regions")

    def compiling_behind(self) -> Executor:
        """An equal executor whose `compile_regions` does not wait for compilers, but returns calls that run PyTorch's
        kernels until there is code. The executor itself, if it always waits or compiles nothing.
        """
        return self


def fusing(executors: Sequence[Executor]) -> frozenset[str]:
    """Names of the executors that fuse."""
    return frozenset([executor.name for executor in executors if executor.fuses])


@lru_cache(maxsize=4096)
def executor_symbol(
    function: Callable[..., Any], executor: str, tags: frozenset[Tag] = frozenset(), reference: Symbol | None = None
) -> Symbol:
    """The symbol of an executor's function, which implements ``reference``; the same object for equal arguments.

    A function at the top level of a module is printed by name. A trace with any other function cannot be saved.
    """
    path = import_path(function)
    if path is not None:
        return Symbol(".".join(path), function, tags=tags, executor=executor, reference=reference)
    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else f"{executor}_call"
    return Symbol(name, function, tags=tags | {Tag.LOCAL}, executor=executor, reference=reference)


def declined_by_failing(
    executor: str, what: str, step: str, location: SourceLocation | None, error: BaseException | str, cure: str = ""
) -> str:
    """Warn about an executor's failure, and return the reason for which ``what`` is declined.

    Args:
        executor: name of the executor.
        what: description of the ops that it was queried about.
        step: the method of the executor that failed.
        error: the exception, or a description of the defect of its result.
        cure: what the author of the executor does about it.

    Raises:
        ExecutorError: ``THUNDER_STRICT=1``.
    """
    description = error if isinstance(error, str) else f"failed with {type(error).__name__}: {error}"
    problem = f"its {step} {description}" + (f"; {cure}" if cure else "")
    if is_strict():
        cause = None if isinstance(error, str) else error
        raise ExecutorError(f"{executor}: {what}: {problem}", location=location) from cause
    warn_user(f"{executor} declines {what}: {problem}", ExecutorWarning)
    return problem
