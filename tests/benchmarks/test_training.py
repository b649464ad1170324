"""The training benchmarks' own machinery. Figures are not tested here: they depend on the machine."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import saved_bytes, training
from benchmarks.gpu_training import _largest_difference
from benchmarks.process import in_fresh_process

ROOT = Path(__file__).resolve().parents[2]
# What LitGPT requires and its model does not need.
ABSENT = ("lightning", "lightning_utilities", "jsonargparse", "safetensors", "huggingface_hub", "tokenizers", "psutil")
SMALL_BERT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def test_first_step_runs():
    assert training.first_step("thunder", "inductor", layers=1, sequence=8) > 0


def test_steady_step_runs_with_equal_gradients():
    names = ["eager", "torch.compile", "thunder"]
    # torch.compile warns and logs; in a process of its own, as the benchmark runs it.
    sizes = {"layers": 1, "sequence": 8}
    medians = in_fresh_process(training.steady_step, threads=1, names=names, backend="aot_eager", **sizes)
    assert set(medians) == set(names)


@pytest.mark.parametrize(
    ("case", "sizes"), [("tiny_llama_block", {"n_embd": 64, "n_head": 4, "n_query_groups": 2}), ("bert", SMALL_BERT)]
)
def test_saved_bytes_runs(case, sizes):
    saved = saved_bytes.saved_bytes(case, sequence=16, **sizes)
    assert set(saved) == {"eager", "default", "aggressive"}
    assert all(count > 0 for count in saved.values())


def test_saved_bytes_counts_storages_once_and_nothing_that_is_there_anyway():
    linear = torch.nn.Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=True)

    def call(x: torch.Tensor) -> torch.Tensor:
        hidden = linear(x)  # saves x and the weight, which are there anyway
        return hidden * hidden.view(2, 4) * hidden.sin()  # saves hidden, its product with itself, its sine

    assert saved_bytes._saved(call, linear, (x,)) == 3 * x.nbytes
    assert linear.weight.grad is None


def test_largest_difference_is_relative_and_not_silent_about_nan():
    assert _largest_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert _largest_difference([1.0, float("nan")], [1.0, 2.0]) != 0


def test_gpu_training_runs_without_what_litgpt_requires(tmp_path):
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
    options = ["--tiny", "--steps", "4", "--threads", "1", "--precisions", "bf16-true", "--json", str(result)]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu_training", *options]
    environment = os.environ | {"PYTHONPATH": str(carried), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "training step" in done.stdout
    runs = json.loads(result.read_text())["runs"]["bf16-true"]
    assert set(runs) == {"eager", "thunder", "eager, other attention"}
    assert runs["thunder"]["losses"] == pytest.approx(runs["eager"]["losses"], rel=0.01)
    assert len(runs["eager"]["losses"]) == 4
