"""Results as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.row import Row

RESULTS = Path(__file__).parent / "results"


class NotAResult(ValueError):
    """The file is not one that the benchmarks wrote."""


def write(path: Path, circumstances: dict[str, Any], rows: Sequence[Row], **more: Any) -> None:
    """Write a result: what it depends on, its rows, and what else there is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = circumstances | {"rows": [row.as_json() for row in rows]} | more
    path.write_text(json.dumps(content, indent=2) + "\n")


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """A result: the circumstances, with what else was written, and the rows.

    Raises:
        NotAResult: it cannot be read as one.
    """
    try:
        content = json.loads(path.read_text())
        known = {field.name for field in fields(Row)}
        rows = [Row(**{key: value for key, value in row.items() if key in known}) for row in content.pop("rows")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotAResult(f"{path} is no result of the benchmarks: {error}") from error
    return content, rows


def named_by_date(circumstances: dict[str, Any]) -> Path:
    """Where ``--keep`` puts a result."""
    return RESULTS / f"{circumstances['date'][:10]}-{circumstances['commit'][:12]}.json"


def facts(circumstances: dict[str, Any]) -> list[str]:
    """The circumstances in a few lines."""
    plain = {key: value for key, value in circumstances.items() if isinstance(value, str | int | float)}
    nested = [
        value for key, value in circumstances.items() if key in ("versions", "device") and isinstance(value, dict)
    ]
    return [", ".join(f"{key} {value}" for key, value in part.items() if value) for part in (plain, *nested)]
