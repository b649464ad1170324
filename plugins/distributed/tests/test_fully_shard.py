"""Modules of `fully_shard` in compiled programs, compared with eager PyTorch in two processes."""

from __future__ import annotations

from pathlib import Path

from fully_shard_cases import CASES
from two_processes import run_cases


def test_two_processes(tmp_path: Path) -> None:
    run_cases(CASES, tmp_path)
