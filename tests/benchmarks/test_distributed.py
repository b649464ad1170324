"""Training steps on several processes."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.distributed import _covered
from benchmarks.process import ROOT


def test_two_processes(tmp_path):
    result = tmp_path / "result.json"
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "benchmarks.distributed", "--layers", "1", "--device", "cpu", "--sequence", "16", "--steps", "2"]
    command += ["--wrapper", "fsdp", "ddp", "--impl", "eager", "thunder[]", "--json", str(result)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert {row["group"].split(", ")[-2] for row in rows} == {"fsdp", "ddp"}
    for row in rows:
        assert set(row["values"]) == {"eager", "thunder[]"}, row
        if row["what"] in ("first loss", "last loss"):
            assert row["values"]["thunder[]"] == pytest.approx(row["values"]["eager"], rel=1e-2)


def test_time_in_which_something_runs():
    assert _covered([(5, 7), (0, 2), (1, 3), (6, 6.5)]) == 5
