"""The base class of fusion executors."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from thunder_core import progress
from thunder_core.executors import Claimed, Decision, Declined, Executor
from thunder_core.executors.executor import CompiledRegions, declined_by_failing
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.trace import Trace
from thunder_fusion.compiled_regions import compiled_once
from thunder_fusion.regions import find_regions


class FusionExecutor(Executor):
    """Runs regions: sets of operations that become one call.

    Subclasses decide for each operation whether it can be part of a region (`can_fuse`), and compile a region (`fuse`).
    Regions are as large as dependencies allow; equal ones are compiled once.
    """

    takes_parts = True
    fuses = True
    smallest: ClassVar[int] = 1
    """Regions with fewer operations are not compiled; their operations are offered to the next executors."""
    compiles_behind = False
    """Whether other processes compile regions, while PyTorch's kernels run them (`thunder_fusion.behind`)."""

    @abstractmethod
    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """True, or the reason why this operation cannot be part of a region. Must not have side effects."""

    def can_write(self, bound: BoundSymbol) -> bool | str:
        """`can_fuse` for an operation that writes an argument in place.

        Regions with such operations are not functional: they write memory of their inputs, which no other operation of
        the region reads or writes, though it may be viewed.
        """
        return "it writes memory in place"

    @abstractmethod
    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]] | str:
        """Compile a region, or return a reason for not compiling it.

        Args:
            region: a trace, functional except for operations that `can_write` accepted. Its inputs are the values that
                the region reads; its output is the tuple of values that others read: tensors that share memory neither
                with its inputs nor with each other. The parts of each operation are its lowered forms.

        Returns:
            A function of the inputs, in order, that returns these values in a tuple or a list, with the shapes,
            strides, dtypes and devices of the region. In-place writes must increment version counters, as in PyTorch.
            Or a reason; the operations are then offered to the next executors.
        """

    def fuse_all(self, regions: Sequence[Trace]) -> Sequence[Callable[..., Sequence[Any]] | str]:
        """`fuse` for distinct regions, in order.

        Override this if compiling regions together is faster; `thunder_core.progress.count` then reports progress.
        """
        results = []
        for number, region in enumerate(regions):
            progress.count(number, len(regions))
            results.append(self.fuse(region))
        return results

    def artifact_key(self) -> str | None:
        """The executor's part of artifacts' keys: versions, options, settings. Thunder adds region and machine.

        None: compiled regions are not stored on disk. Otherwise `save` and `load` must be implemented.
        """
        return None

    def save(self, compiled: Callable[..., Sequence[Any]]) -> bytes | None:
        """The result of `fuse` as bytes that other processes can load; None if it cannot be saved."""
        return None

    def load(self, artifact: bytes, region: Trace) -> Callable[..., Sequence[Any]]:
        """The argument of `save`, from its result, for an equal region.

        If this raises, the region is compiled again and the artifact replaced.
        """
        raise NotImplementedError(f"{self.name} saves no artifacts")

    def claim(self, bound: BoundSymbol) -> Decision:
        """`can_fuse` or `can_write` as a decision."""
        step = "can_write" if bound.effects.mutates else "can_fuse"
        try:
            outcome = self.can_write(bound) if bound.effects.mutates else self.can_fuse(bound)
        except Exception as error:  # noqa: BLE001 - becomes the reason
            outcome = declined_by_failing(self.name, bound.symbol.name, step, bound.location, error)
        return (
            Claimed(self.name)
            if outcome is True
            else Declined(self.name, outcome or "it is not fused by this executor")
        )

    def partition(self, trace: Trace, offers: Sequence[int]) -> list[list[int]]:
        """The regions of `thunder_fusion.regions.find_regions`, each with operations of one context."""
        known: dict[Context | None, int] = {}
        labels: list[int | None] = [None] * len(trace.symbols)
        for index in offers:
            labels[index] = known.setdefault(trace.symbols[index].context, len(known))
        return find_regions(trace.symbols, labels)

    def compile_regions(self, regions: Sequence[Trace]) -> CompiledRegions:
        """The results of `fuse_all` for regions that are not cached. Small ones are declined."""
        return compiled_once(self, regions)

    def compiling_behind(self) -> Self:
        """This executor with `compiles_behind`. It needs artifacts, by which regions come from other processes."""
        return self if self.compiles_behind else self._twin()

    def compiling_ahead(self) -> Self:
        """This executor without `compiles_behind`."""
        return self._twin() if self.compiles_behind else self

    def _twin(self) -> Self:
        """The one copy that differs in `compiles_behind`."""
        twin: Self | None = self.__dict__.get("_other")
        if twin is None:
            twin = copy.copy(self)
            for one, other, behind in ((self, twin, self.compiles_behind), (twin, self, not self.compiles_behind)):
                one.__dict__.update(_other=other, compiles_behind=behind)
        return twin
