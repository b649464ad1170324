"""What became of the regions of one program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegionReport:
    """Regions that fusion executors were asked to compile.

    Attributes:
        regions: how many there are; of equal ones, each counts.
        known: different ones that had been compiled in this process before.
        read: different ones that were read from disk.
        compiled: different ones that were compiled now, or refused.
        notes: what went wrong with the compiled regions on disk.
        contents: what is in the regions that run, in words; equal ones once.
    """

    regions: int
    known: int
    read: int
    compiled: int
    notes: tuple[str, ...]
    contents: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people."""
        different = self.known + self.read + self.compiled
        counts = f"{self.compiled} compiled, {self.read} read from disk, {self.known} known"
        own = [f"  {content}" for content in self.contents]
        return [f"{self.regions} regions, {different} of them different: {counts}", *own, *self.notes]
