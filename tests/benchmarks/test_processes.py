"""Measurements in new processes, as the commands run them."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measurement import measure
from benchmarks.process import ROOT, ChildFailed, FreshProcess, in_fresh_process, yield_turn
from benchmarks.workload import Workload

# What LitGPT requires and its model does not need.
ABSENT = ("lightning", "lightning_utilities", "jsonargparse", "safetensors", "huggingface_hub", "tokenizers", "psutil")
TINY = ["--layers", "1", "--embedding", "32", "--heads", "2", "--vocabulary", "256"]
QUICK = ["--batch", "1", "--sequence", "8", "--steps", "2", "--noise", "0", "--device", "cpu"]


@pytest.mark.slow
@pytest.mark.needs_compiler
def test_compile_runs_in_its_own_process_with_its_own_caches(tmp_path):
    workload = Workload("mlp", "prefill", "float32", "cpu", 2, 1, 2, overrides={"layers": 1, "width": 8})
    found = in_fresh_process(measure, threads=1, caches=tmp_path, workload=workload.as_json(), implementation="compile")
    assert found["losses"]
    assert list((tmp_path / "inductor").iterdir())


def test_processes_give_way_to_each_other_and_die_with_their_context():
    with (
        FreshProcess(_counted, threads=1, count=2) as first,
        FreshProcess(_counted, threads=1, count=1) as second,
        FreshProcess(_counted, threads=1, count=9) as left,
    ):
        assert [first.run_turn(), second.run_turn(), left.run_turn()] == [True] * 3
        assert [first.run_turn(), second.run_turn()] == [True, False]
        assert [first.run_turn(), first.run_turn()] == [False, False]
        assert (first.result(), second.result()) == (2, 1)
    with pytest.raises(ChildFailed, match="ZeroDivisionError"):
        in_fresh_process(_counted, threads=1, count=0)


def test_files_that_are_named_are_in_the_current_folder(tmp_path, monkeypatch):
    """A configuration, as `thunder:mine.yaml`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("recompute: none\n")
    workload = Workload("mlp", "prefill", "float32", "cpu", 2, 1, 2, overrides={"layers": 1, "width": 8})
    found = in_fresh_process(measure, threads=1, workload=workload.as_json(), implementation="thunder:mine.yaml")
    assert found["losses"]


def _counted(count):
    for _ in range(count):
        yield_turn()
    return count if 1 / count else None


@pytest.mark.slow
def test_train_step_runs_without_what_litgpt_requires(tmp_path):
    carried = tmp_path / "carried"
    (carried / "litgpt").mkdir(parents=True)
    (source,) = importlib.util.find_spec("litgpt").submodule_search_locations
    for name in ("__init__.py", "config.py", "model.py"):
        shutil.copy(Path(source, name), carried / "litgpt")
    (carried / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {ABSENT!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    result = tmp_path / "result.json"
    options = [*TINY, *QUICK, "--override", "n_query_groups=1", "--precision", "bf16-true"]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "train-step", "--model", "tiny-llama-1.1b", *options]
    environment = os.environ | {"PYTHONPATH": str(carried), "CUDA_VISIBLE_DEVICES": ""}
    command += ["--json", str(result), "--impl", "eager", "thunder"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "training step" in done.stdout
    runs = json.loads(result.read_text())["runs"]
    assert [run["implementation"] for run in runs] == ["eager", "thunder"]
    assert runs[1]["result"]["losses"] == pytest.approx(runs[0]["result"]["losses"], rel=0.01)
