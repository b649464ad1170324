"""Training steps on several processes."""

import json

import pytest

from benchmarks.distributed import WRAPPERS, _covered
from benchmarks.process import ROOT
from thunder_testing.forked import run_torchrun

LLAMA = ["--model", "hf:llama", "--embedding", "64", "--heads", "4", "--override", "num_key_value_heads=2"]


@pytest.mark.parametrize(
    ("wrappers", "more"),
    [
        (("fsdp", "ddp"), []),
        pytest.param(("hsdp", "tensor", "sequence"), LLAMA, marks=pytest.mark.battery),
        pytest.param(("tensor",), [*LLAMA, "--checkpoint"], marks=pytest.mark.battery),
    ],
    ids=["one dimension", "two dimensions", "checkpoint"],
)
@pytest.mark.slow
def test_two_processes(tmp_path, wrappers, more):
    result = tmp_path / "result.json"
    program = "import runpy; runpy.run_module('benchmarks.distributed', run_name='__main__', alter_sys=True)"
    options = ["--layers", "1", "--device", "cpu", "--sequence", "16", "--steps", "2", *more]
    options += ["--wrapper", *wrappers, "--impl", "eager", "thunder[]", "--json", str(result)]
    done = run_torchrun(program, *options, folder=tmp_path, directory=ROOT)
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    assert {name for row in rows for name in row["group"].split(", ") if name in WRAPPERS} == set(wrappers)
    for row in rows:
        assert set(row["values"]) == {"eager", "thunder[]"}, row
        if row["what"] in ("first loss", "last loss"):
            assert row["values"]["thunder[]"] == pytest.approx(row["values"]["eager"], rel=1e-2)


def test_time_in_which_something_runs():
    assert _covered([(5, 7), (0, 2), (1, 3), (6, 6.5)]) == 5
