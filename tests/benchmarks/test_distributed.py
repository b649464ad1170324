"""Training steps on several processes."""

import json

import pytest

from benchmarks.distributed import _covered
from benchmarks.process import ROOT
from thunder_testing.forked import run_torchrun


def test_two_processes(tmp_path):
    result = tmp_path / "result.json"
    program = "import runpy; runpy.run_module('benchmarks.distributed', run_name='__main__', alter_sys=True)"
    options = ["--layers", "1", "--device", "cpu", "--sequence", "16", "--steps", "2"]
    options += ["--wrapper", "fsdp", "ddp", "--impl", "eager", "thunder[]", "--json", str(result)]
    done = run_torchrun(program, *options, folder=tmp_path, directory=ROOT)
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert {row["group"].split(", ")[-2] for row in rows} == {"fsdp", "ddp"}
    for row in rows:
        assert set(row["values"]) == {"eager", "thunder[]"}, row
        if row["what"] in ("first loss", "last loss"):
            assert row["values"]["thunder[]"] == pytest.approx(row["values"]["eager"], rel=1e-2)


def test_time_in_which_something_runs():
    assert _covered([(5, 7), (0, 2), (1, 3), (6, 6.5)]) == 5
