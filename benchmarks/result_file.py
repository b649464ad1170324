"""JSON files of results."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.row import Row

RESULTS = Path(__file__).parent / "results"


class InvalidResult(ValueError):
    """The file cannot be read as a result of the benchmarks."""


def write(path: Path, environment: dict[str, Any], rows: Sequence[Row], **more: Any) -> None:
    """Write the environment, the rows and further entries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = environment | {"rows": [row.as_json() for row in rows]} | more
    # An interruption leaves the previous content.
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(content, indent=2) + "\n")
    unfinished.replace(path)


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """The environment, with all further entries, and the rows of a file.

    Raises:
        InvalidResult: the file cannot be read as a result.
    """
    try:
        content = json.loads(path.read_text())
        known = {field.name for field in fields(Row)}
        rows = [Row(**{key: value for key, value in row.items() if key in known}) for row in content.pop("rows")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidResult(f"{path} is not a result of the benchmarks: {error}") from error
    return content, rows


def default_path(environment: dict[str, Any]) -> Path:
    """The path to which ``--keep`` writes a result. That of a report has the name of the device."""
    name = f"{environment['date'][:10]}-{environment['commit'][:12]}"
    if "report" in environment:
        name += f"-{re.sub(r'[^a-z0-9]+', '-', environment['device']['name'].lower())}-report"
    return RESULTS / f"{name}.json"


def summary_lines(environment: dict[str, Any]) -> list[str]:
    """The environment as lines of text: its plain entries, the versions, the device."""
    plain = {key: value for key, value in environment.items() if type(value) in (str, int, float)}
    nested = [value for key, value in environment.items() if key in ("versions", "device") and isinstance(value, dict)]
    return [", ".join(f"{key} {value}" for key, value in part.items() if value) for part in (plain, *nested)]
