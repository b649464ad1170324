"""Regions of several traces, compiled together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import islice

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.passes.compiled_regions import Compiled, RegionCounts, Request, compiled_once

Fusing = Generator[list[Request], list[Compiled | str], list[BoundSymbol]]
"""Asks for regions to be compiled, is sent what became of them, and returns the lines of a trace."""


def fuse_together(fusing: Sequence[Fusing], counts: RegionCounts) -> list[list[BoundSymbol]]:
    """What each of them returns. Regions that they ask for at the same time are compiled together."""
    lines: dict[int, list[BoundSymbol]] = {}
    wanted: dict[int, list[Request]] = {}

    def advance(index: int, answers: list[Compiled | str] | None) -> None:
        try:
            wanted[index] = next(fusing[index]) if answers is None else fusing[index].send(answers)
        except StopIteration as end:
            lines[index] = end.value

    for index in range(len(fusing)):
        advance(index, None)
    while wanted:
        asked, wanted = wanted, {}
        answers = iter(compiled_once([request for requests in asked.values() for request in requests], counts))
        for index, requests in asked.items():
            advance(index, list(islice(answers, len(requests))))
    return [lines[index] for index in range(len(fusing))]
