"""Checks in C++ kernels with several threads.

An exception that leaves a thread ends the process, for example for an index out of range in a parallel loop. This
module catches it where it is thrown, and rethrows it after the parallel block.
"""

from __future__ import annotations

import re
from typing import Final

_CHECK: Final = re.compile(r"\bTORCH_CHECK\(|\bthrow ")
_PARALLEL: Final = re.compile(r" *#pragma omp parallel\b")
_SHARED: Final = re.compile(r" *#pragma omp (for|single)\b(?:.*\bcollapse\((\d+)\))?")


def with_caught_errors(source: str) -> str:
    """The C++ source with checks that may fail in any thread. Sources without checks are returned unchanged.

    Loops stop after a failure, because their results are not used.
    """
    lines = source.split("\n")
    written: list[str] = []
    start = number = 0
    for begin, line in enumerate(lines):
        end = _end_of_block(lines, begin + 1) if begin >= start and _PARALLEL.match(line) else None
        if end is None or not _CHECK.search("\n".join(lines[begin:end])):
            continue
        number += 1
        failed, error = f"thunder_failed_{number}", f"thunder_error_{number}"
        written += [
            *lines[start:begin],
            f"std::atomic<bool> {failed}{{false}};",
            f"std::exception_ptr {error};",
            *_parallel(lines[begin : end + 1], failed, error),
            f"if ({error}) std::rethrow_exception({error});",
        ]
        start = end + 1
    return "\n".join([*written, *lines[start:]])


def _parallel(lines: list[str], failed: str, error: str) -> list[str]:
    """A parallel block in which no loop, and no part for a single thread, throws."""
    written: list[str] = []
    start = 0
    for number, line in enumerate(lines):
        match = _SHARED.match(line) if number >= start else None
        if match is None:
            continue
        begin = number + 1
        if match[1] == "for":  # the brace of the innermost parallel loop
            begin += 2 * int(match[2] or 1) - 1
        end = _end_of_block(lines, begin)
        if end is None or not _CHECK.search("\n".join(lines[begin:end])):
            continue
        written += [
            *lines[start : begin + 1],
            *([f"if ({failed}.load(std::memory_order_relaxed)) continue;"] if match[1] == "for" else []),
            "try {",
            *lines[begin + 1 : end],
            "} catch (...) {",
            f"if (!{failed}.exchange(true)) {error} = std::current_exception();",
            "}",
        ]
        start = end
    return [*written, *lines[start:]]


def _end_of_block(lines: list[str], begin: int) -> int | None:
    """The line with the closing brace of the block that begins with a line; None if none begins there.

    Inductor writes both braces on separate lines with the same indentation.
    """
    if begin >= len(lines) or lines[begin].strip() != "{":
        return None
    closing = lines[begin].replace("{", "}")
    return next((number for number in range(begin + 1, len(lines)) if lines[number] == closing), None)
