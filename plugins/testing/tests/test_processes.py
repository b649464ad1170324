"""Cases in processes of a group, of which one ends the process."""

from __future__ import annotations

import os
from pathlib import Path

from thunder_testing.processes import run_cases


def _passes() -> None:
    pass


def _fails() -> None:
    raise AssertionError


def _raises() -> None:
    raise KeyError("of a case")


def _ends_the_process() -> None:
    os._exit(1)


CASES = {
    "first": _passes,
    "fails": _fails,
    "raises": _raises,
    "then": _passes,
    "ends": _ends_the_process,
    "last": _passes,
}


def test_cases_run_in_new_processes_after_one_that_stops_them(tmp_path: Path) -> None:
    results = run_cases(__name__, CASES, tmp_path, processes=1)
    assert [name for name, (text,) in results.items() if not text] == ["first", "then", "last"]
    assert "KeyError: 'of a case'" in results["raises"][0]
    assert results["ends"] == ["not run"]
