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
TIME, MEMORY = "time, ", "peak memory, "  # of titles and rows that report.py writes
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
    """The section of the README for a report in this repository: a table of times and ratios, and their origin.

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
    device = content["processor"] if content["device"]["type"] == "cpu" else content["device"]["name"]
    origin = (
        f"Measured by `python -m benchmarks report` at commit {commit} on {content['date'][:10]}: {device}, PyTorch "
        f"{content['versions']['torch']}, Python {content['python']} ([all results]({name})). The last columns are "
        "Thunder's time and peak memory as ratios to the best of the others."
    )
    return f"<!-- report: {name} -->\n{origin}\n\n{ratio_table(rows)}{END}"


def ratio_table(rows: Sequence[Row]) -> str:
    """One table for a report: the times of each workload, and the ratios of Thunder's time and peak memory to the best.

    The last rows are geometric means of the ratios.
    """
    timed = [row for row in rows if row.unit == "ms" and row.values and not row.group.startswith("host")]
    means = {row.what: row for row in rows if row.unit == "x" and row.values}
    memory = {(row.group, row.what): row for row in rows if row.unit == "MiB"}
    names = list(dict.fromkeys(name for row in timed for name in row.values))
    several = len({row.group for row in timed}) > 1
    lines = [" | ".join(["| workload", *names, "time", "memory"]) + " |", "|---" * (len(names) + 3) + "|"]
    for row in timed:
        what = f"{row.group}: {row.what}" if several else row.what
        cells = [f"{number(row.values[name])} {row.unit}" if name in row.values else "-" for name in names]
        ratios = [_thunder_ratio(each) for each in (row, memory.get((f"{MEMORY}{row.group}", row.what)))]
        lines.append(" | ".join([f"| {what}", *cells, *ratios]) + " |")
    for what, mean in means.items():
        if what.startswith(TIME):
            cells = [f"{mean.values[name]:.2f}x" if name in mean.values else "-" for name in names]
            of = what.removeprefix(TIME)
            ratios = [_thunder_value(each) for each in (mean, means.get(f"{MEMORY}{of}"))]
            lines.append(" | ".join([f"| geometric mean, {of}", *cells, *ratios]) + " |")
    return "\n".join(lines) + "\n"


def _thunder_ratio(row: Row | None) -> str:
    """The least ratio of Thunder's implementations to the best of the others; ``-`` without one."""
    ratios = [] if row is None else [ratio for name, ratio in row.ratios(BEST).items() if is_thunder(name)]
    return f"{min(ratios):.2f}x" if ratios else "-"


def _thunder_value(row: Row | None) -> str:
    """The least value of Thunder's implementations in a row of ratios; ``-`` without one."""
    values = [] if row is None else [value for name, value in row.values.items() if is_thunder(name)]
    return f"{min(values):.2f}x" if values else "-"


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
