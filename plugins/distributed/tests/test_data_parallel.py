"""DistributedDataParallel in compiled programs: in two processes."""

from __future__ import annotations

from pathlib import Path

import data_parallel_cases
import two_processes


def test_two_processes(tmp_path: Path) -> None:
    two_processes.run_cases(data_parallel_cases.CASES, tmp_path)
