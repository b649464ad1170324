"""What ``thunder explain`` shows of a compilation, as tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from thunder.command_line.output import Column
from thunder_core.report.decision_table import DecisionRow
from thunder_core.report.decisions import Share

_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>\d+) in ")


def matches(symbol: str, pattern: str) -> bool:
    """Whether a pattern is for a symbol: ``silu``, ``nn`` and ``*.silu`` are for ``torch.nn.functional.silu``."""
    return fnmatchcase(symbol, pattern) or pattern in symbol.split(".")


def operation_table(rows: Sequence[DecisionRow]) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows. What a line was taken apart into follows it, indented."""
    titles = ("PHASE", "OPERATION", "EXECUTOR", "WHERE", "DECLINED BY")
    columns = [Column("COUNT", right=True), *map(Column, titles)]
    cells = [
        [
            str(row.lines),
            row.phase,
            "  " * row.depth + row.symbol,
            row.executor,
            "" if row.location is None else _short(row.location),
            "; ".join(f"{executor}: {reason}" for executor, reason in row.declined),
        ]
        for row in rows
    ]
    return columns, cells


def share_table(shares: Sequence[Share]) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows of what each executor runs of a program; shares of which nothing is known are left empty."""
    columns = [Column("EXECUTOR"), *(Column(title, right=True) for title in ("LINES", "SHARE", "BYTES", "FLOPS"))]
    lines = sum(share.lines for share in shares)
    known_bytes, known_flops = any(share.bytes for share in shares), any(share.flops for share in shares)
    rows = [
        [
            share.executor,
            str(share.lines),
            f"{share.lines / lines:.0%}",
            f"{share.bytes:.0%}" if known_bytes else "",
            f"{share.flops:.0%}" if known_flops else "",
        ]
        for share in shares
    ]
    return columns, rows


def _short(location: str) -> str:
    """``file:line``, from the working directory if the file is in it."""
    match = _PLACE.match(location)
    if match is None:
        return location
    path, here = Path(match["file"]), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{match['line']}"
