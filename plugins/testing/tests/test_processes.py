"""Cases in processes of a group, of which one ends the process."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch.distributed as dist

from thunder_testing import processes
from thunder_testing.processes import process_suite, run_case


def _passes() -> None:
    pass


def _fails() -> None:
    raise AssertionError


def _raises() -> None:
    raise KeyError("of a case")


def _fails_in_the_second() -> None:
    assert dist.get_rank() == 0


def _ends_the_process() -> None:
    os._exit(1)


CASES = {
    "first": _passes,
    "fails": _fails,
    "raises": _raises,
    "then": _passes,
    "ends": _ends_the_process,
    "last": _passes,
    "fails_in_the_second": _fails_in_the_second,
}


def test_cases_run_in_new_processes_after_one_that_stops_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    results = {name: run_case(__name__, name, tmp_path_factory, processes=1) for name in list(CASES)[:6]}
    assert [name for name, (text,) in results.items() if not text] == ["first", "then", "last"]
    assert "KeyError: 'of a case'" in results["raises"][0]
    assert results["ends"] == ["the process ended"]


def test_the_failure_of_each_process_is_reported(tmp_path_factory: pytest.TempPathFactory) -> None:
    first, second = run_case(__name__, "fails_in_the_second", tmp_path_factory)
    assert first == ""
    assert "AssertionError" in second
    assert run_case(__name__, "first", tmp_path_factory) == ["", ""]


def test_a_case_whose_process_ends_runs_once_more(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run_case(__name__, "ends", tmp_path_factory, processes=1)
    test: Any = process_suite(__name__, ["ends"], processes=1)
    for second, fails in (([""], False), (ended, True)):
        outcomes = [second, ended]
        monkeypatch.setattr(processes, "run_case", lambda *_, outcomes=outcomes, **__: outcomes.pop())
        if fails:
            with pytest.raises(pytest.fail.Exception, match="the process ended"):
                test("ends", tmp_path_factory)
        else:
            test("ends", tmp_path_factory)
        assert not outcomes
