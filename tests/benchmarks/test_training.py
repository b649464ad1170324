"""The training benchmarks' own machinery. Figures are not tested here: they depend on the machine."""

import json
import os

import pytest
import torch

from benchmarks import memory_budgets, saved_bytes, training, waiting
from benchmarks.process import ROOT
from thunder_testing.forked import run_forked

SMALL_BERT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}

STEADY = """
import functools, json, sys
from benchmarks import timing, training, waiting

timing.interleaved_medians = functools.partial(timing.interleaved_medians, rounds=1, block=0)
names = json.loads(sys.argv[1])
print(json.dumps(training.steady_step(names, backend="aot_eager", layers=1, sequence=8)))
"""


@pytest.mark.slow
def test_first_step_runs():
    assert training.first_step("thunder[]", "inductor", layers=1, sequence=8) > 0


@pytest.mark.slow
def test_steady_step_runs_with_equal_gradients():
    names = ["eager", "compile", "thunder[]"]
    # torch.compile warns and logs; in a new process, as the benchmark runs it.
    done = run_forked(STEADY, json.dumps(names), environment=os.environ | {"OMP_NUM_THREADS": "1"}, directory=ROOT)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout.splitlines()[-1])) == set(names)


@pytest.mark.parametrize(
    ("case", "sizes"),
    [("tiny_llama_block", {"n_embd": 64, "n_head": 4, "n_query_groups": 2}), ("bert_training", SMALL_BERT)],
)
@pytest.mark.slow
def test_saved_bytes_runs(case, sizes):
    saved = saved_bytes.saved_bytes(case, sequence=16, **sizes)
    assert set(saved) == {"eager", "default", "aggressive", "low-memory"}
    assert all(count > 0 for count in saved.values())


@pytest.mark.slow
def test_memory_budgets_run():
    rows = memory_budgets.peaks(budgets=2, layers=1, sequence=128)
    assert len(rows) == 2
    for budget, predicted, measured in rows:
        assert predicted <= budget
        assert measured == pytest.approx(predicted, rel=memory_budgets.LIMIT)


def test_saved_bytes_counts_storages_once_and_nothing_that_is_there_anyway():
    linear = torch.nn.Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=True)

    def call(x: torch.Tensor) -> torch.Tensor:
        hidden = linear(x)  # saves x and the weight, which are there anyway
        return hidden * hidden.view(2, 4) * hidden.sin()  # saves hidden, its product with itself, its sine

    assert saved_bytes.saved_by(call, linear, (x,)) == 3 * x.nbytes
    assert linear.weight.grad is None


@pytest.mark.slow
def test_steps_from_the_module_on():
    seconds = waiting.seconds_of_steps("thunder[]", steps=(1, 3), layers=1, sequence=8)
    assert 0 < seconds[0] < seconds[1]
