"""A picture of a small program as SVG: ops as boxes below those whose results they read, backward beside forward."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from thunder.report.compile_report import CompileReport
from thunder_core.errors import OptionError
from thunder_core.ir.annotation import Annotator
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import one_line
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Phase
from thunder_core.runtime.cache_entry import CacheEntry

MOST: Final = 200
"""The largest number of ops in a picture."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 200, 44, 24, 36, 30
_LETTERS: Final = 25
_STYLE: Final = """
.back { fill: #ffffff } text { fill: #1b1f27; font: 12px ui-monospace, "DejaVu Sans Mono", monospace }
.small { font-size: 10px; fill: #626b7a } .title { font-size: 13px; font-weight: 600 }
rect.op { fill: #f5f6f8; stroke: #b9c0cb } rect.claimed { fill: #dce7fd; stroke: #2557c7 }
path { fill: none; stroke: #8a93a2 } path.saved { stroke: #b3460e; stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
.back { fill: #14171c } text { fill: #dfe3ea } .small { fill: #929cad }
rect.op { fill: #1c2027; stroke: #4a5260 } rect.claimed { fill: #263a5e; stroke: #82aaff }
path { stroke: #6d7686 } path.saved { stroke: #ff9d6b } }
"""


@dataclass(frozen=True)
class _Box:
    op: BoundSymbol
    x: int
    y: int


def write_picture(report: CompileReport, entry: CacheEntry, path: str | os.PathLike[str]) -> None:
    """Write the picture of a program to a file, which is replaced if it exists.

    Raises:
        OptionError: it has more than `MOST` ops.
        OSError: the file cannot be written.
    """
    executed = entry.program.executed
    count = sum(len(trace.symbols) for trace in executed.values())
    if count > MOST:
        raise OptionError(
            f"{report.name} has {count} ops, and a picture has at most {MOST}",
            advice=("write the explorer instead: to_html, or thunder explain --html",),
        )
    Path(path).write_text(_picture(report.name, executed), encoding="utf-8")


def _picture(name: str, executed: Mapping[Phase, Trace]) -> str:
    left, height = _MARGIN, 0
    parts: list[str] = []
    forward: dict[str, _Box] = {}
    for phase, trace in executed.items():
        boxes = _placed(trace, left)
        producers = {proxy.name: box for box in boxes for proxy in box.op.outputs()}
        parts.append(_text(left, _MARGIN, f"{name}: {phase.value}", "title"))
        for box in boxes:
            for proxy in {proxy.name: proxy for proxy in box.op.inputs()}:
                if proxy in producers:
                    parts.append(_edge(producers[proxy], box, "used"))
                elif proxy in forward:
                    parts.append(_edge(forward[proxy], box, "saved"))
        parts += [line for box in boxes for line in _drawn(box)]
        left = max([box.x + _WIDTH for box in boxes], default=left) + 3 * _GAP_X
        height = max([height, *[box.y + _HEIGHT for box in boxes]])
        forward |= producers
    width, height = left - 2 * _GAP_X, height + _MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>'
    return "\n".join([start, '<rect class="back" width="100%" height="100%"/>', *parts, "</svg>\n"])


def _placed(trace: Trace, left: int) -> list[_Box]:
    """The ops in rows: each below the ops whose results it reads."""
    levels: dict[str, int] = {}
    columns: dict[int, int] = {}
    boxes = []
    for op in trace.symbols:
        level = max([levels[proxy.name] + 1 for proxy in op.inputs() if proxy.name in levels], default=0)
        levels |= dict.fromkeys([proxy.name for proxy in op.outputs()], level)
        column = columns.get(level, 0)
        columns[level] = column + 1
        y = 2 * _MARGIN + level * (_HEIGHT + _GAP_Y)
        boxes.append(_Box(op, left + column * (_WIDTH + _GAP_X), y))
    return boxes


def _drawn(box: _Box) -> Iterator[str]:
    op = box.op
    kind = "op" if op.symbol.executor is None else "op claimed"
    about = [f"executor: {op.symbol.executor or 'reference'}"]
    about += [] if op.location is None else [op.location.describe()]
    about += [part.symbol.name for part in op.parts]
    yield f"<g><title>{_escaped(' | '.join(about))}</title>"
    yield f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5"/>'
    yield _text(box.x + 8, box.y + 18, _cut(op.symbol.name.removesuffix(".default").rpartition(".")[2]), "")
    annotator = Annotator()
    results = ", ".join([f"{proxy.name}: {annotator.annotate(proxy)}" for proxy in op.outputs()])
    yield _text(box.x + 8, box.y + 35, _cut(results, _LETTERS + 5), "small")
    yield "</g>"


def _edge(start: _Box, end: _Box, kind: str) -> str:
    x, y, to_x, to_y = start.x + _WIDTH // 2, start.y + _HEIGHT, end.x + _WIDTH // 2, end.y
    if kind == "saved":
        x, y, to_x, to_y = start.x + _WIDTH, start.y + _HEIGHT // 2, end.x, end.y + _HEIGHT // 2
        return f'<path class="saved" d="M {x} {y} C {x + 40} {y} {to_x - 40} {to_y} {to_x} {to_y}"/>'
    bend = max(20, (to_y - y) // 2)
    return f'<path class="{kind}" d="M {x} {y} C {x} {y + bend} {to_x} {to_y - bend} {to_x} {to_y}"/>'


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{_escaped(text)}</text>'


def _cut(text: str, most: int = _LETTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _escaped(text: str) -> str:
    """The text for XML, which has no control characters."""
    return one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
