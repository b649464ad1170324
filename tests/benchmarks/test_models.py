"""Models by name, and what they are made of."""

import litgpt  # noqa: F401  # as a whole, before the benchmarks would take two files of it
import pytest
import torch

from benchmarks.models import catalogue
from benchmarks.models.model import UnknownModel
from benchmarks.tasks import Decode, Prefill, Training
from benchmarks.workload import Workload

TINY = {"layers": 1, "embedding": 32, "heads": 2, "vocabulary": 256}
CASES = {
    "nanogpt": TINY,
    "resnet": {"layers": 1, "width": 8, "image": 8},
    "mlp": {"layers": 1, "width": 16},
    "small-llama": TINY,
    "small-bert": TINY | {"pad_token_id": 0},
    "tiny-llama-1.1b": TINY | {"n_query_groups": 1, "intermediate_size": 48},
    "pythia-14m": {"layers": 1, "embedding": 32, "n_head": 2},
    "hf:gpt2": TINY,
    "hf:llama": TINY | {"num_key_value_heads": 1, "intermediate_size": 48},
    "hf:distilbert": TINY | {"hidden_dim": 48},
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_trains(name):
    workload = Workload(name, "training", "float32", "cpu", 2, 8, 2, "sgd", overrides=CASES[name])
    task = Training(workload)
    before = [parameter.clone() for parameter in task.program.parameters()]
    losses = [task.loss(task.step(task.program, index), index) for index in range(2)]
    assert all(loss.isfinite() for loss in losses)
    assert losses[0] != losses[1]
    changed = [not torch.equal(old, new) for old, new in zip(before, task.program.parameters(), strict=True)]
    assert sum(changed) >= len(changed) - 1  # BERT's pooler and the like take no part
    assert all(parameter.grad is None for parameter in task.program.parameters())


def test_common_words_are_each_familys_own():
    llama = catalogue.make("tiny-llama-1.1b", CASES["tiny-llama-1.1b"]).module.config
    assert (llama.n_layer, llama.n_embd, llama.n_head, llama.padded_vocab_size) == (1, 32, 2, 256)
    gpt2 = catalogue.make("hf:gpt2", TINY).module.config
    assert (gpt2.n_layer, gpt2.n_embd, gpt2.n_head, gpt2.vocab_size) == (1, 32, 2, 256)
    assert gpt2.resid_pdrop == gpt2.attn_pdrop == gpt2.embd_pdrop == 0


def test_initial_weights_are_the_same_each_time():
    workload = Workload("nanogpt", "training", "bf16-true", "cpu", 2, 8, 2, "none", overrides=TINY)
    first, second = (Training(workload) for _ in range(2))
    torch.testing.assert_close(list(first.program.parameters()), list(second.program.parameters()), rtol=0, atol=0)
    torch.testing.assert_close(first.batches, second.batches)
    assert {parameter.dtype for parameter in first.program.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tiny-llama-1.1", "tiny-llama-1.1b"),
        ("nanogtp", "nanogpt"),
        ("hf:gtp2", "hf:gpt2"),
        ("Llama-3-8b", "Llama-3-8B"),
    ],
)
def test_an_unknown_model_is_told_its_neighbour(name, near):
    with pytest.raises(UnknownModel, match=f"did you mean '{near}'"):
        catalogue.check(name)


@pytest.mark.parametrize(
    ("name", "setting", "near"),
    [("nanogpt", "embeding", "embedding"), ("pythia-14m", "n_layers", "n_layer"), ("hf:gpt2", "n_headd", "n_head")],
)
def test_an_unknown_setting_is_told_its_neighbour(name, setting, near):
    with pytest.raises(UnknownModel, match=f"did you mean '{near}'"):
        catalogue.make(name, {setting: 2})


def test_decode_continues_the_text_with_the_cache():
    workload = Workload("small-llama", "decode", "float32", "cpu", 1, 6, 4, overrides=TINY)
    decode = Decode(workload)
    whole = Prefill(Workload("small-llama", "prefill", "float32", "cpu", 1, 9, 1, overrides=TINY))
    expected = whole.program(decode.inputs[:, :9], torch.arange(9))
    for index in range(3):
        found = decode.step(decode.program, index)
        torch.testing.assert_close(found[:, 0], expected[:, 6 + index])


def test_decode_needs_a_cache():
    with pytest.raises(UnknownModel, match="nanogpt has none"):
        Decode(Workload("nanogpt", "decode", "float32", "cpu", 1, 6, 4, overrides=TINY))
