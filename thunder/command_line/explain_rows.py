"""The tables of ``thunder explain``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from thunder.command_line.output import Column
from thunder.report.decisions import DecisionRow, Share

_HERE: Final = Path(__file__).parent
_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>\d+) in [^ ]+(?: \((?P<module>.+)\))?")


def matches(symbol: str, pattern: str) -> bool:
    """Whether a pattern matches a symbol: ``silu``, ``nn`` and ``*.silu`` match ``torch.nn.functional.silu``."""
    return fnmatchcase(symbol, pattern) or pattern in symbol.split(".")


def operation_table(rows: Sequence[DecisionRow]) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows. The parts of an op follow it, indented."""
    columns = [Column("COUNT", right=True), *map(Column, ("PHASE", "OPERATION", "EXECUTOR"))]
    columns += [Column("WHERE", wraps=True), Column("DECLINED BY", wraps=True)]
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
    """Columns and rows with the share of each executor in a program; unknown shares are empty."""
    columns = [Column("EXECUTOR"), *(Column(title, right=True) for title in ("OPERATIONS", "SHARE", "BYTES", "FLOPS"))]
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
    """``file:line (module)``, the file relative to the working directory or the Python path. No files of Thunder."""
    match = _PLACE.fullmatch(location)
    if match is None:
        return location
    path, module = Path(match["file"]), match["module"] or ""
    if path.is_relative_to(_HERE):  # no line of the program: it consists of PyTorch's modules
        return module
    holders = [folder for folder in (Path.cwd(), *map(Path, filter(None, sys.path))) if path.is_relative_to(folder)]
    place = f"{path.relative_to(holders[0]) if holders else path}:{match['line']}"
    return f"{place} ({module})" if module else place
