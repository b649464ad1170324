"""What became of the regions of one program."""

from __future__ import annotations

from dataclasses import dataclass, fields

from thunder_core.executors.compiled_regions import RegionCounts


@dataclass(frozen=True, slots=True)
class RegionReport(RegionCounts):
    """Regions that executors that fuse were given to compile.

    Attributes:
        contents: what is in the regions that run, in words; equal ones once.
    """

    contents: tuple[str, ...] = ()

    @classmethod
    def of(cls, counts: RegionCounts, contents: tuple[str, ...]) -> RegionReport:
        """The counts of a compilation, with the contents of its regions."""
        return cls(**{field.name: getattr(counts, field.name) for field in fields(counts)}, contents=contents)

    def lines(self) -> list[str]:
        """For people."""
        different = self.known + self.read + self.compiled
        counts = f"{self.compiled} compiled, {self.read} read from disk, {self.known} known"
        own = [f"  {content}" for content in self.contents]
        return [f"{self.regions} regions, {different} of them different: {counts}", *own, *self.notes]
