"""DistributedDataParallel in compiled programs: in two processes."""

from __future__ import annotations

import pytest
from data_parallel_cases import CASES

from thunder_testing.processes import run_cases

Results = dict[str, list[str]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run_cases("data_parallel_cases", CASES, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("name", CASES)
def test_two_processes(results: Results, name: str) -> None:
    assert [text for text in results[name] if text] == []
