"""Runs of tests: samples and parts of all cases, time limits with the name of the test, times by folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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

@pytest.mark.parametrize("case", range(30))
@pytest.mark.slow
def test_slow(case): pass

@pytest.mark.in_every_part
def test_sampled_inside(): pass
"""
TOGETHER = """
import pytest

pytestmark = pytest.mark.slow

@pytest.mark.parametrize("case", range(5))
def test_together(case): pass
"""


def _run(folder: Path, tests: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "first").mkdir(exist_ok=True)
    (folder / "first" / "test_first.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-c/dev/null", f"--rootdir={folder}", *arguments, folder]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("THUNDER_TEST")}
    environment = {**outside, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def _collected(folder: Path, tests: str = TESTS, **variables: str) -> Counter[str]:
    done = _run(folder, tests, "--collect-only", "-q", **variables)
    return Counter([line for line in done.stdout.splitlines() if "::" in line])


@pytest.mark.slow
def test_samples_and_all_parts_take_each_case(tmp_path: Path) -> None:
    every = _collected(tmp_path)
    assert len(every) == 111
    marked = {name for name in every if "battery" in name or "slow" in name}
    table = {name for name in every if "table" in name}
    for seed in ("20785", "20786"):
        taken = set(_collected(tmp_path, THUNDER_TEST_SEED=seed))
        assert marked & taken == set(_sampled(marked, THUNDER_TEST_SEED=seed))
        assert 5 < len(marked & taken) < 25
        assert 0 < len(table & taken) < 7
        assert set(every) - marked - table <= taken
    seven = [_sampled(marked, THUNDER_TEST_SEED=str(seed)) for seed in range(20785, 20792)]
    assert Counter(name for taken in seven for name in taken) == Counter(marked)
    seven = [_of_table(table, THUNDER_TEST_SEED=str(seed)) for seed in range(20785, 20792)]
    assert {name for taken in seven for name in taken} == table
    assert [len(_of_table({"a[1]", name}, THUNDER_TEST_SEED="1")) for name in ("a[2]", "a[3]")] == [2, 2]
    assert all(_of_table({f"{name}[{case}]" for case in range(4)}, THUNDER_TEST_SEED="1") for name in "abcdefgh")
    parts = [_collected(tmp_path, THUNDER_TEST_PART=f"{part}/3") for part in (1, 2, 3)]
    inside = {name for name in every if "inside" in name}
    assert sum(parts, Counter()) == every + Counter(dict.fromkeys(inside, 2))


@pytest.mark.slow
def test_the_tests_of_a_marked_file_are_taken_together(tmp_path: Path) -> None:
    seeds = range(20785, 20785 + batteries.ONE_IN)
    taken = [len(_collected(tmp_path, TOGETHER, THUNDER_TEST_SEED=str(seed))) for seed in seeds]
    assert sorted(taken) == [0] * 6 + [5]


def _sampled(names: set[str], **variables: str) -> list[str]:
    with _with(**variables):
        return batteries.sample(names)


def _of_table(names: set[str], **variables: str) -> list[str]:
    with _with(**variables):
        return batteries._of_table(names)


@contextmanager
def _with(**variables: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("THUNDER_TEST_PART", raising=False)  # of the run that this test is in
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.mark.parametrize("part", ["0/4", "5/4", "2", "a/b"])
@pytest.mark.slow
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


@pytest.mark.slow
def test_a_test_over_its_limit_fails_with_its_name(tmp_path: Path) -> None:
    """Also while it waits for a lock; its stack is shown, and the next test runs."""
    done = _run(tmp_path, SLOW)
    assert "test_first.py::test_that_waits took longer than its limit of 0.2 s" in done.stdout
    assert "test_first.py" in done.stderr
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.slow
def test_times_are_shown_by_folder_and_stored(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "test_second.py").write_text("def test_other(): pass\n")
    times = tmp_path / "times.json"
    done = _run(tmp_path, TESTS, **{time_table.FILE: str(times)})
    rows = done.stdout[done.stdout.index("time by folder") :].splitlines()[2:4]
    assert sorted((row.split()[1], row.split()[2]) for row in rows) == [("1", "second"), ("111", "first")]
    assert len(json.loads(times.read_text())) == 112
