"""The training benchmarks' own machinery. Figures are not tested here: they depend on the machine."""

import pytest
import torch

from benchmarks import saved_bytes, training
from benchmarks.process import in_fresh_process

SMALL_BERT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def test_first_step_runs():
    assert training.first_step("thunder[]", "inductor", layers=1, sequence=8) > 0


@pytest.mark.slow
def test_steady_step_runs_with_equal_gradients():
    names = ["eager", "compile", "thunder[]"]
    # torch.compile warns and logs; in a new process, as the benchmark runs it.
    sizes = {"layers": 1, "sequence": 8}
    medians = in_fresh_process(training.steady_step, threads=1, names=names, backend="aot_eager", **sizes)
    assert set(medians) == set(names)


@pytest.mark.parametrize(
    ("case", "sizes"),
    [("tiny_llama_block", {"n_embd": 64, "n_head": 4, "n_query_groups": 2}), ("bert_training", SMALL_BERT)],
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
