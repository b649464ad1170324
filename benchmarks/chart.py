"""Charts of rows: a panel for each row, with a bar for each implementation."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.row import Row
from benchmarks.table import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4
ENDINGS = (".png", ".svg", ".pdf", ".jpg", ".webp")
"""Supported formats. This list avoids importing matplotlib for the check of the path."""
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
