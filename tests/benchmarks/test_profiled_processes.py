"""Processes that compile together and are measured one after the other. They import this file: it is light."""

import os
import time
from pathlib import Path

import pytest

from benchmarks.process import yield_turn
from benchmarks.profiling import processes
from benchmarks.workload import Workload


@pytest.mark.slow
def test_together_all_are_ready_before_the_first_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "measure", _noted)
    log = tmp_path / "log"
    monkeypatch.setenv("PROFILE_TEST_LOG", str(log))
    seen = []
    workloads = [Workload("mlp", "training", "float32", "cpu", 1, 0, 2)]
    names = ["slow", "failing", "fast"]
    options = {"threads": 1, "together": True, "folder": None}
    runs = processes.profile_all(workloads, names, **options, after=lambda done: seen.append(len(done)))
    notes = log.read_text().split()
    assert sorted(notes[:2]) == ["fast-ready", "slow-ready"]
    assert notes[2:] == ["slow-begins", "slow-ends", "fast-begins", "fast-ends"]
    assert seen == [1, 2, 3]
    assert [run.failure[-6:] for run in runs] == ["", "broken", ""]


def _noted(workload, implementation, together, stem):
    def note(what):
        with Path(os.environ["PROFILE_TEST_LOG"]).open("a") as log:
            log.write(f"{implementation}-{what}\n")

    assert together
    assert stem is None
    if implementation == "failing":
        raise ValueError("broken")
    time.sleep(0.3 if implementation == "slow" else 0)
    note("ready")
    yield_turn()
    note("begins")
    time.sleep(0.1)
    note("ends")
    return {"first": None, "steps": []}
