"""Rows as tables of Markdown, and the section of README.md that has those of a report."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine, result_file, sources
from benchmarks.process import ROOT
from benchmarks.result_file import InvalidResult
from benchmarks.row import BEST, Row, is_thunder
from benchmarks.table import number

README = ROOT / "README.md"
HEADING = "## Benchmarks\n"
END = "<!-- end of the report -->\n"
COMMIT = re.compile(r"[0-9a-f]+")
SECTION = re.compile(r"<!-- report: (?P<path>\S+) -->\n.*?" + re.escape(END), re.DOTALL)


def tables(rows: Sequence[Row], baseline: str | None = None) -> str:
    """A table for each group, with a column for each implementation, and the ratios of Thunder."""
    parts = []
    for group, each in itertools.groupby(rows, key=lambda row: row.group):
        members = list(each)
        names = list(dict.fromkeys(name for row in members for name in row.values))
        lines = [" | ".join([f"| {group}", *names]) + " |", "|---" * (len(names) + 1) + "|"]
        for row in members:
            cells = [_cell(row, name, row.ratios(baseline).get(name)) for name in names]
            lines.append(" | ".join([f"| {row.what}", *cells]) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _cell(row: Row, name: str, ratio: float | None) -> str:
    if name not in row.values:
        return "-"
    cell = f"{number(row.values[name])} {row.unit}".rstrip()
    return f"{cell}, {ratio:.2f}x" if ratio is not None and is_thunder(name) else cell


def section(path: Path) -> str:
    """The section of the README for a report in this repository: times, peak memory and means, and their origin.

    Raises:
        InvalidResult: the file is not a report of one commit, or not in this repository.
    """
    content, rows = result_file.read(path)
    if not content.get("report"):
        raise InvalidResult(f"{path} is not a report; python -m benchmarks report --keep writes one")
    commit = content["commit"]
    if not COMMIT.fullmatch(commit) and content["sources"] == sources.checksum():
        commit = machine.commit()  # the same sources, measured where Git is absent, or beside other changes
    if not COMMIT.fullmatch(commit):
        raise InvalidResult(f"{path} is not of one commit: {commit or 'unknown'}")
    if not path.resolve().is_relative_to(ROOT):
        raise InvalidResult(f"{path} is not in {ROOT}; copy it to benchmarks/results/")
    name = path.resolve().relative_to(ROOT).as_posix()
    shown = [row for row in rows if row.unit in ("ms", "MiB", "x") and row.values and not _is_detail(row)]
    device = content["processor"] if content["device"]["type"] == "cpu" else content["device"]["name"]
    origin = (
        f"Measured by `python -m benchmarks report` at commit {commit} on {content['date'][:10]}: {device}, PyTorch "
        f"{content['versions']['torch']}, Python {content['python']} ([all results]({name})). Ratios are to the best "
        "of the others."
    )
    return f"<!-- report: {name} -->\n{origin}\n\n{tables(shown, BEST)}{END}"


def _is_detail(row: Row) -> bool:
    return row.group.startswith(("host", "peak memory reserved"))


def update_readme(path: Path, readme: Path = README) -> None:
    """Replace the report's section in the README, or add it below the heading `HEADING`. Raises like `section`."""
    text, new = readme.read_text(), section(path)
    if SECTION.search(text):
        readme.write_text(SECTION.sub(lambda _: new, text))
        return
    before, heading, after = text.partition(HEADING)
    if not heading:
        raise InvalidResult(f"{readme} has no heading {HEADING.strip()!r}, below which the report belongs")
    readme.write_text(f"{before}{heading}\n{new}{after}")
