"""DTensor and `parallelize_module` in two processes, and in one; the cases are in `tensor_parallel_cases`."""

from __future__ import annotations

from pathlib import Path

from tests.subclasses.tensor_parallel_cases import CASES, FUNCTIONS
from thunder_testing.processes import process_suite, run_cases

MODULE = "tests.subclasses.tensor_parallel_cases"

test_two_processes = process_suite(MODULE, CASES)


def test_one_process(tmp_path: Path) -> None:
    names = (*FUNCTIONS, "results_that_are_distributed", "inputs_and_outputs_of_modules", "parallel_loss_inside")
    results = run_cases(MODULE, names, tmp_path, processes=1)
    assert {name: texts for name, texts in results.items() if any(texts)} == {}
