"""The transform: counts the lines of what it sees."""

from dataclasses import dataclass
from typing import ClassVar

from thunder_core.passes.transform import Place, Transform

counts = []


@dataclass(frozen=True)
class CountLines(Transform):
    name: ClassVar[str] = "count_lines"
    place: ClassVar[Place] = Place.LAST

    def run(self, trace, context):
        counts.append(len(trace.symbols))
        return trace


def make(options):
    return CountLines()
