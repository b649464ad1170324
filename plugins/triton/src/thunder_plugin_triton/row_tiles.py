"""Tiles of kernels whose programs handle whole rows."""

from __future__ import annotations

from typing import Final

from thunder_plugin_triton.rows import next_power_of_two
from thunder_plugin_triton.tuning import Configuration

LARGEST: Final = 32768
"""Largest number of elements of a row, so that it fits into the registers of a program."""


def tile(width: int, elements: int, share: int) -> Configuration:
    """A tile of one row, or of several short rows with ``elements`` elements.

    Args:
        width: elements of a row.
        elements: elements of a tile of several rows.
        share: elements per thread; there are 1 to 32 warps.
    """
    block = next_power_of_two(width)
    rows = max(1, elements // block)
    warps = min(32, max(1, rows * block // (32 * share)))
    return {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def single_pass(width: int, *key: object) -> list[Configuration]:
    """Candidates for kernels that read rows once and write them."""
    return _different([tile(width, 2048, 16), tile(width, 2048, 8), tile(width, 4096, 16), tile(width, 4096, 32)])


def accumulating(width: int, *key: object) -> list[Configuration]:
    """Candidates for kernels that accumulate sums over rows, with ``PROGRAMS`` programs per multiprocessor.

    To hide the latency of loads, there are several programs per multiprocessor, or ``STAGES`` tiles in the pipeline.
    """
    choices = (
        (2048, 8, 2, 1), (2048, 8, 2, 3), (2048, 16, 2, 3), (2048, 16, 4, 1),
        (2048, 16, 4, 2), (2048, 8, 1, 4), (4096, 16, 2, 2), (4096, 16, 2, 3),
    )  # fmt: skip
    return _different(
        [
            {**tile(width, elements, share), "PROGRAMS": programs, "STAGES": stages}
            for elements, share, programs, stages in choices
        ]
    )


def of_kernel(chosen: Configuration) -> Configuration:
    """The launch arguments of a candidate of `accumulating`: all but the number of programs."""
    return {name: value for name, value in chosen.items() if name != "PROGRAMS"}


def blocks(*key: object) -> list[Configuration]:
    """Candidates for kernels whose programs process a long row in steps of ``BLOCK``."""
    return [{"BLOCK": block, "num_warps": warps} for block, warps in ((4096, 8), (8192, 16), (8192, 8), (16384, 16))]


def _different(choices: list[Configuration]) -> list[Configuration]:
    return [choice for index, choice in enumerate(choices) if choice not in choices[:index]]
