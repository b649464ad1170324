"""What an executor is: it answers, for each line, whether it runs it, and perhaps how it is differentiated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from thunder_core import progress
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.defects import declined_by_failing
from thunder_core.executors.derivative_pair import DerivativePair
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace


class Executor(ABC):
    """Base of all executors. They are hashable; those that are equal answer equally.

    Attributes:
        name: in configurations, decisions and reports.
        takes_parts: whether it runs core-ATen operators. Then lines that no executor claims are lowered to these and
            offered again.
        rewrites: whether a claim of it can be a rewrite, or it rewrites patterns of several lines.
        composites: symbols with `Tag.COMPOSITE` that a claim of it is for. Programs are searched for these.
        claimed_symbols: the symbols that its claims are for; None where it has no list of them.
    """

    name: str
    takes_parts: bool = False
    rewrites: bool = False
    composites: frozenset[Symbol] = frozenset()
    claimed_symbols: frozenset[Symbol] | None = None

    @abstractmethod
    def claim(self, bound: BoundSymbol) -> Decision:
        """Whether this executor runs ``bound``. A pure query: it changes nothing, and may be asked again and again."""

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The pair for a line that this executor claims. A pure query, asked once for equal lines.

        None: the line is differentiated like any other, and the executor may still run what then stands in forward.
        """
        return None

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        """The line from values before its arguments, where it ends a pattern of several lines; None where it does not.

        A pure query, asked before differentiation of executors with ``rewrites``. What the lines in between compute is
        dropped if nobody else reads it.

        Args:
            producers: the lines before this one, by the names of their results.

        Returns:
            A line with the same outputs, which have the same values and gradients. This executor claims it.
        """
        return None

    def for_parts(self, whole: BoundSymbol) -> Executor | None:
        """Who is asked for the parts of a line that nobody claims whole; None where its parts are not for this one."""
        return self

    def unmatched(self, lines: Sequence[BoundSymbol]) -> list[str]:
        """For the report: a sentence about each pattern among its options that matches nothing in the program.

        Args:
            lines: all that the program has at some stage, and what they were taken apart into.
        """
        return []

    @property
    def fusion(self) -> FusionExecutor | None:
        """The executor that compiles the lines claimed here as regions; None where each is run by itself."""
        return None


class FusionExecutor(Executor):
    """Runs regions: sets of lines that become one call."""

    takes_parts = True
    smallest: ClassVar[int] = 1
    """Regions of fewer lines are not compiled; their lines are offered to the executors after this one."""

    @abstractmethod
    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """True, or why this line cannot be in a region. A pure query."""

    def can_write(self, bound: BoundSymbol) -> bool | str:
        """`can_fuse` for a line that writes an argument in place. Regions with such lines are not functional: they
        write memory of their inputs, which no other line of the region reads or writes, though views of it are made.
        """
        return "it writes memory in place"

    @abstractmethod
    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]] | str:
        """Compile a region, or say why not.

        Args:
            region: a trace, functional but for lines that `can_write` took. Its inputs are what the region reads; its
                output is the tuple of what others read of it: tensors that share memory neither with its inputs nor
                with each other. Its parts say of each line what it may be lowered to.

        Returns:
            What is called with the inputs, in order, and returns those values in a tuple or a list, with the shapes,
            strides, dtypes and devices that the region says. What it writes it writes as PyTorch does: version counters
            grow. Or a reason; the lines are then offered to the executors after this one.
        """

    def fuse_all(self, regions: Sequence[Trace]) -> Sequence[Callable[..., Sequence[Any]] | str]:
        """`fuse` for regions that are all different, in their order. To be overridden where they compile faster
        together than one by one; `thunder_core.progress.count` then says how far it is.
        """
        answers = []
        for number, region in enumerate(regions):
            progress.count(number, len(regions))
            answers.append(self.fuse(region))
        return answers

    def artifact_key(self) -> str | None:
        """What artifacts depend on besides the region, the machine, PyTorch and Thunder: versions, options, settings.

        None: what this executor compiles is not kept on disk. Otherwise it has `save` and `load`.
        """
        return None

    def save(self, compiled: Callable[..., Sequence[Any]]) -> bytes | None:
        """What `fuse` returned as an artifact that other processes can load; None if it has none."""
        return None

    def load(self, artifact: bytes, region: Trace) -> Callable[..., Sequence[Any]]:
        """What `save` was given, from what it returned, for an equal region. Whatever it raises, the region is
        compiled again and the artifact replaced.
        """
        raise NotImplementedError(f"{self.name} saves no artifacts")

    def claim(self, bound: BoundSymbol) -> Decision:
        """`can_fuse` or `can_write` as a decision."""
        step = "can_write" if bound.effects.mutates else "can_fuse"
        try:
            answer = self.can_write(bound) if bound.effects.mutates else self.can_fuse(bound)
        except Exception as error:  # noqa: BLE001 - told as a reason
            answer = declined_by_failing(self.name, bound.symbol.name, step, bound.location, error)
        return Claimed(self.name) if answer is True else Declined(self.name, answer or "it is not fused here")

    @property
    def fusion(self) -> FusionExecutor | None:
        """The executor itself."""
        return self


def fusing(executors: Sequence[Executor]) -> frozenset[str]:
    """Names of the executors that fuse."""
    return frozenset([executor.name for executor in executors if executor.fusion is not None])
