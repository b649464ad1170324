"""Charts of rows: a panel for each row with a bar for each implementation, or ratios to the best of the others."""

from __future__ import annotations

import itertools
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.row import BEST, Row
from benchmarks.table import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4
ENDINGS = (".png", ".svg", ".pdf", ".jpg", ".webp")
"""Supported formats. This list avoids importing matplotlib for the check of the path."""
TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50)
"""Ratios that are marked, as far as they are among the values."""
MISSING = "a chart needs matplotlib: pip install matplotlib, or thunder-core with its extra 'benchmarks'"


class ChartError(RuntimeError):
    """The chart cannot be drawn."""


def check(path: Path) -> None:
    """Raise ChartError if no chart can be written to ``path``. Called before measuring, which takes long."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise ChartError(MISSING)
    if path.suffix.lower() not in ENDINGS:
        raise ChartError(f"--chart {path}: the name of the file must end with one of {', '.join(ENDINGS)}")
    if path.is_dir():
        raise ChartError(f"--chart {path}: this is a folder; pass the path of a file in it")
    if not path.parent.is_dir():
        raise ChartError(f"--chart {path}: there is no folder {path.parent}; create it or choose another path")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ChartError(f"--chart {path}: no permission to write this file; choose another path")


def draw(rows: Sequence[Row], path: Path, baseline: str | None = None) -> None:
    """Write the chart to ``path``, in the format of its suffix.

    Raises:
        ChartError: `check` fails, or no row has a value.
    """
    check(path)
    # Rows with a single value are drawn only if there are no others.
    compared = [row for row in rows if len(row.values) > 1] or [row for row in rows if row.values]
    if not compared:
        raise ChartError("there is nothing to draw: no row has a value")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for row in compared for name in row.values))
    lines = -(-len(compared) // COLUMNS)
    columns = min(COLUMNS, len(compared))
    figure = Figure(figsize=(4.4 * columns, (0.9 + 0.32 * len(names)) * lines), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, row in zip(grid.flat, compared, strict=False):
        _panel(axes, row, names, baseline)
    for axes in grid.flat[len(compared) :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=110)


def _panel(axes: Axes, row: Row, names: list[str], baseline: str | None) -> None:
    ratios = row.ratios(baseline)
    shown = [name for name in names if name in row.values]
    bars = axes.barh(shown, [row.values[name] for name in shown], color=[f"C{names.index(name)}" for name in shown])
    labels = [number(row.values[name]) + (f" ({number(ratios[name])}x)" if name in ratios else "") for name in shown]
    axes.bar_label(bars, labels, padding=3, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.45)
    title = textwrap.fill(row.group, 62) + "\n" + textwrap.fill(f"{row.what} [{row.unit}]", 62)
    axes.set_title(title, fontsize=7)
    axes.tick_params(labelsize=7)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def draw_ratios(rows: Sequence[Row], path: Path) -> None:
    """Write a chart of each implementation's ratio to the best that is not Thunder: a panel per group, a line per row.

    Raises:
        ChartError: `check` fails, or no row has such a ratio.
    """
    check(path)
    groups = {
        group: members
        for group, each in itertools.groupby(rows, key=lambda row: row.group)
        if (members := [row for row in each if row.ratios(BEST)])
    }
    if not groups:
        raise ChartError("there is nothing to draw: no row has a ratio to the best of the others")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    names = list(dict.fromkeys(name for members in groups.values() for row in members for name in row.values))
    heights = [len(members) + 1 for members in groups.values()]
    figure = Figure(figsize=(9, 0.8 + 0.28 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True, height_ratios=heights)
    for axes, (group, members) in zip(panels.flat, groups.items(), strict=True):
        _ratios(axes, group, members, names)
    low, high = panels.flat[0].get_xlim()
    panels.flat[0].set_xticks([tick for tick in TICKS if low <= tick <= high], minor=False)
    panels.flat[0].xaxis.set_minor_locator(NullLocator())
    panels.flat[-1].set_xlabel("ratio to the best of the others; less is better", fontsize=8)
    handles = [panels.flat[0].scatter([], [], color=f"C{index}", label=name) for index, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(names), fontsize=8)
    figure.savefig(path, dpi=110)


def _ratios(axes: Axes, group: str, rows: Sequence[Row], names: list[str]) -> None:
    for index, name in enumerate(names):
        points = [(ratios[name], place) for place, row in enumerate(rows) if name in (ratios := row.ratios(BEST))]
        axes.scatter([x for x, _ in points], [y for _, y in points], color=f"C{index}", s=36, zorder=2)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="0.6", linewidth=1, zorder=1)
    axes.set_yticks(range(len(rows)), [row.what for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="both", color="0.9", zorder=0)
    axes.set_title(group, fontsize=8, loc="left")
    axes.tick_params(labelsize=7)
