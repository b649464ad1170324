"""Runs of tests: samples and parts of all cases, time limits with the name of the test, times by folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import batteries, time_table

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = [f"-ptests.{name}" for name in ("batteries", "time_limits", "time_table")]
TESTS = """
import pytest

@pytest.mark.parametrize("case", range(70))
@pytest.mark.battery
def test_battery(case): pass

@pytest.mark.parametrize("case", range(10))
def test_table(case): pass

@pytest.mark.in_every_part
def test_sampled_inside(): pass
"""


def _run(folder: Path, tests: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "first").mkdir(exist_ok=True)
    (folder / "first" / "test_first.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-c/dev/null", f"--rootdir={folder}", *arguments, folder]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("THUNDER_TEST")}
    environment = {**outside, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def _collected(folder: Path, **variables: str) -> Counter[str]:
    done = _run(folder, TESTS, "--collect-only", "-q", **variables)
    return Counter([line for line in done.stdout.splitlines() if "::" in line])


def test_seven_samples_and_all_parts_take_each_case(tmp_path: Path) -> None:
    every = _collected(tmp_path)
    assert len(every) == 81
    samples = [_collected(tmp_path, THUNDER_TEST_SEED=str(seed)) for seed in (20785, 20786)]
    assert all(11 < len(sample) < 30 for sample in samples)
    names = {name for name in every if "battery" in name}
    assert all(set(every) - names <= set(sample) for sample in samples)
    taken = Counter(name for seed in range(20785, 20792) for name in _sampled(names, THUNDER_TEST_SEED=str(seed)))
    assert taken == Counter(names)
    parts = [_collected(tmp_path, THUNDER_TEST_PART=f"{part}/3") for part in (1, 2, 3)]
    inside = {name for name in every if "inside" in name}
    assert sum(parts, Counter()) == every + Counter(dict.fromkeys(inside, 2))


def _sampled(names: set[str], **variables: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("THUNDER_TEST_PART", raising=False)  # of the run that this test is in
        for name, value in variables.items():
            patch.setenv(name, value)
        return batteries.sample(names)


@pytest.mark.parametrize("part", ["0/4", "5/4", "2", "a/b"])
def test_a_part_that_there_is_not_is_an_error(tmp_path: Path, part: str) -> None:
    done = _run(tmp_path, TESTS, THUNDER_TEST_PART=part)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "it must be like 2/4, the second of four parts" in done.stderr


SLOW = """
import threading, pytest

@pytest.mark.timeout(0.2)
def test_that_waits(): threading.Event().wait()

def test_that_passes(): pass
"""


def test_a_test_over_its_limit_fails_with_its_name(tmp_path: Path) -> None:
    """Also while it waits for a lock; its stack is shown, and the next test runs."""
    done = _run(tmp_path, SLOW)
    assert "test_first.py::test_that_waits took longer than its limit of 0.2 s" in done.stdout
    assert "test_first.py" in done.stderr
    assert "1 failed, 1 passed" in done.stdout


def test_times_are_shown_by_folder_and_stored(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "test_second.py").write_text("def test_other(): pass\n")
    times = tmp_path / "times.json"
    done = _run(tmp_path, TESTS, **{time_table.FILE: str(times)})
    rows = done.stdout[done.stdout.index("time by folder") :].splitlines()[2:4]
    assert sorted((row.split()[1], row.split()[2]) for row in rows) == [("1", "second"), ("81", "first")]
    assert len(json.loads(times.read_text())) == 82
