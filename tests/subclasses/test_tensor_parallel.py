"""DTensor and `parallelize_module` in two processes, and in one; the cases are in `tensor_parallel_cases`."""

from __future__ import annotations

import pytest

from tests.subclasses.processes import run_cases
from tests.subclasses.tensor_parallel_cases import CASES

Results = dict[str, list[str]]


@pytest.fixture(scope="module", params=[2, 1], ids=["two processes", "one process"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("processes")
    return run_cases("tests.subclasses.tensor_parallel_cases", tuple(CASES), request.param, folder)


@pytest.mark.parametrize("name", CASES)
def test_case(results: Results, name: str) -> None:
    assert [text for text in results[name] if text] == []
