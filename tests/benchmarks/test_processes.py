"""Measurements in new processes, as the commands run them."""

import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks.measurement import measure
from benchmarks.process import ROOT, ChildFailed, FreshProcess, TimeLimit, in_fresh_process
from benchmarks.workload import Workload
from tests.benchmarks.counted import asleep, counted
from thunder_testing.forked import run_forked

# What LitGPT requires and its model does not need.
REQUIRED_BY_LITGPT = (
    *("lightning", "lightning_utilities", "jsonargparse"),
    *("safetensors", "huggingface_hub", "tokenizers", "psutil"),
)
# The command, all in one process: what would start another one, and import the same, calls the function.
ABSENT = """
import sys

ABSENT = {absent}
assert not {{name.partition(".")[0] for name in sys.modules}} & {{*ABSENT}} - {{"psutil"}}


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Absent())

from benchmarks import comparison
from benchmarks.__main__ import main
from tests.benchmarks.here import Here

comparison.FreshProcess = Here
sys.exit(main(sys.argv[1:]))
"""
TINY = ["--layers", "1", "--embedding", "32", "--heads", "2", "--vocabulary", "256"]
QUICK = ["--batch", "1", "--sequence", "8", "--steps", "2", "--noise", "0", "--turns", "1", "--device", "cpu"]


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_compile_runs_in_its_own_process_with_its_own_caches(tmp_path, monkeypatch):
    # Inductor compiles one kernel: no checks of vector instructions and no header, which the empty caches lack.
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")
    monkeypatch.setenv("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    workload = Workload("mlp", "prefill", "float32", "cpu", 2, 1, 2, overrides={"layers": 1, "width": 8})
    found = in_fresh_process(measure, threads=1, caches=tmp_path, workload=workload.as_json(), implementation="compile")
    assert found["losses"]
    assert list((tmp_path / "inductor").iterdir())


def test_processes_give_way_to_each_other_and_die_with_their_context():
    with (
        FreshProcess(counted, threads=1, count=2) as first,
        FreshProcess(counted, threads=1, count=1) as second,
        FreshProcess(counted, threads=1, count=9) as left,
    ):
        assert [first.run_turn(), second.run_turn(), left.run_turn()] == [True] * 3
        assert [first.run_turn(), second.run_turn()] == [True, False]
        assert [first.run_turn(), first.run_turn()] == [False, False]
        assert (first.result(), second.result()) == (2, 1)
    with pytest.raises(ChildFailed, match="ZeroDivisionError"):
        in_fresh_process(counted, threads=1, count=0)


def test_a_process_is_killed_at_its_limit():
    with FreshProcess(asleep, threads=1, limit=0.2) as process:
        assert not process.run_turn()
        assert process.timed_out
        with pytest.raises(TimeLimit, match=r"no result within 0\.2 s"):
            process.result()
    with FreshProcess(counted, threads=1, limit=60, count=1) as process:
        assert process.result() == 1
        assert not process.timed_out


@pytest.mark.slow
def test_files_that_are_named_are_in_the_current_folder(tmp_path, monkeypatch):
    """A configuration, as `thunder:mine.yaml`; the command, its process and their turns."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("recompute: none\n")
    sizes = ["--model", "mlp", "--layers", "1", "--override", "width=8", "--batch", "1", "--steps", "2"]
    options = ["--impl", "thunder:mine.yaml", "--turns", "1", "--noise", "0", "--device", "cpu"]
    assert command_line.main(["train-step", *sizes, *options, "--json", "result.json"]) == 0
    (run,) = json.loads(Path("result.json").read_text())["runs"]
    assert run["implementation"] == "thunder:mine.yaml"
    assert len(run["result"]["losses"]) == 2
    assert len(run["result"]["steps"]) == 1


@pytest.mark.slow
def test_train_step_runs_without_what_litgpt_requires(tmp_path):
    (tmp_path / "litgpt").mkdir()
    (source,) = importlib.util.find_spec("litgpt").submodule_search_locations
    for name in ("__init__.py", "config.py", "model.py"):
        shutil.copy(Path(source, name), tmp_path / "litgpt")
    result = tmp_path / "result.json"
    options = [*TINY, *QUICK, "--override", "n_query_groups=1", "--precision", "bf16-true"]
    options += ["--model", "tiny-llama-1.1b", "--json", str(result), "--impl", "eager", "thunder"]
    program = ABSENT.format(absent=REQUIRED_BY_LITGPT)
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = run_forked(program, "train-step", *options, environment=environment, directory=ROOT, path=[tmp_path])
    assert done.returncode == 0, done.stderr
    assert "training step" in done.stdout
    runs = json.loads(result.read_text())["runs"]
    assert [run["implementation"] for run in runs] == ["eager", "thunder"]
    assert runs[1]["result"]["losses"] == pytest.approx(runs[0]["result"]["losses"], rel=0.01)
