"""Executors that fuse: what an author says of them, and the regions that follow from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from thunder_core import progress
from thunder_core.executors import Claimed, Decision, Declined, Executor
from thunder_core.executors.compiled_regions import CompiledRegions
from thunder_core.executors.executor import declined_by_failing
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.trace import Trace
from thunder_fusion.compiled_regions import compiled_once
from thunder_fusion.regions import find_regions


class FusionExecutor(Executor):
    """Runs regions: sets of lines that become one call.

    An author says of each line whether it can be in a region (`can_fuse`), and compiles one (`fuse`). Regions are as
    large as dependencies allow; of equal ones one is compiled.
    """

    takes_parts = True
    fuses = True
    smallest: ClassVar[int] = 1
    """Regions of fewer lines are not compiled; their lines are offered to the executors after this one."""

    @abstractmethod
    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """True, or why this line cannot be in a region. A pure query."""

    def can_write(self, bound: BoundSymbol) -> bool | str:
        """`can_fuse` for a line that writes an argument in place. Regions with such lines are not functional: they
        write memory of their inputs, which no other line of the region reads or writes, though it may be viewed.
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

        None: what this executor compiles is not stored on disk. Otherwise it has `save` and `load`.
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
        except Exception as error:  # noqa: BLE001 - becomes the reason
            answer = declined_by_failing(self.name, bound.symbol.name, step, bound.location, error)
        return Claimed(self.name) if answer is True else Declined(self.name, answer or "it is not fused here")

    def partition(self, trace: Trace, offers: Sequence[int]) -> list[list[int]]:
        """The regions of `thunder_fusion.regions.find_regions`; lines with different contexts share none."""
        known: dict[Context | None, int] = {}
        labels: list[int | None] = [None] * len(trace.symbols)
        for index in offers:
            labels[index] = known.setdefault(trace.symbols[index].context, len(known))
        return find_regions(trace.symbols, labels)

    def compile_regions(self, regions: Sequence[Trace]) -> CompiledRegions:
        """What `fuse_all` makes of regions that are neither known here nor on disk. Small ones are refused."""
        return compiled_once(self, regions)
