"""DTensor and `parallelize_module` in two processes, and in one; the cases are in `tensor_parallel_cases`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.subclasses.tensor_parallel_cases import CASES, FUNCTIONS
from thunder_testing.processes import run_cases

Results = dict[str, list[str]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run_cases("tests.subclasses.tensor_parallel_cases", CASES, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("name", CASES)
def test_two_processes(results: Results, name: str) -> None:
    assert [text for text in results[name] if text] == []


def test_one_process(tmp_path: Path) -> None:
    names = (*FUNCTIONS, "results_that_are_distributed", "inputs_and_outputs_of_modules", "parallel_loss_inside")
    results = run_cases("tests.subclasses.tensor_parallel_cases", names, tmp_path, processes=1)
    assert {name: texts for name, texts in results.items() if any(texts)} == {}
