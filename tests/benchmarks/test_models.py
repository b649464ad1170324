"""Models by name, and what they are made of."""

from dataclasses import replace
from types import SimpleNamespace

import litgpt  # noqa: F401  # as a whole, before the benchmarks would take two files of it
import pytest
import torch

from benchmarks.models import catalogue, small
from benchmarks.models.model import BenchmarkModel, Features, Integers, UnknownModel
from benchmarks.tasks import Decode, Generation, Prefill, Training
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
    "bert-large-small": TINY,
    "mixtral-like-small": {},
    "t5-large-small": {},
    "whisper-small": {"max_source_positions": 8},
}
GENERATED = Workload("hf:llama", "generation", "float32", "cpu", 2, 6, 2, new_tokens=5, overrides=CASES["hf:llama"])


@pytest.mark.battery
@pytest.mark.parametrize("name", CASES)
def test_a_model_trains(name):
    workload = Workload(name, "training", "float32", "cpu", 2, 8, 2, "sgd", overrides=CASES[name])
    task = Training(workload)
    before = [parameter.clone() for parameter in task.program.parameters()]
    losses = [task.loss(task.step(task.program, index), index) for index in range(2)]
    assert all(loss.isfinite() for loss in losses)
    assert losses[0] != losses[1]
    changed = [not torch.equal(old, new) for old, new in zip(before, task.program.parameters(), strict=True)]
    assert sum(changed) >= len(changed) - 2  # BERT's pooler and the like take no part, nor do biases of Whisper's keys
    assert all(parameter.grad is None for parameter in task.program.parameters())


def test_common_words_are_each_familys_own():
    llama = catalogue.make("tiny-llama-1.1b", CASES["tiny-llama-1.1b"]).module.config
    assert (llama.n_layer, llama.n_embd, llama.n_head, llama.padded_vocab_size) == (1, 32, 2, 256)
    gpt2 = catalogue.make("hf:gpt2", TINY).module.config
    assert (gpt2.n_layer, gpt2.n_embd, gpt2.n_head, gpt2.vocab_size) == (1, 32, 2, 256)
    assert gpt2.resid_pdrop == gpt2.attn_pdrop == gpt2.embd_pdrop == 0


@pytest.mark.slow
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


@pytest.mark.slow
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


class Pixels(torch.nn.Module):
    """The output of torchvision's models for segmentation."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 5, 1)

    def forward(self, x):
        return {"out": self.convolution(x), "aux": None}


class Denoiser(torch.nn.Module):
    """The inputs and the output of the UNet of diffusers."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, sample, timestep, encoder_hidden_states):
        assert timestep.shape == (3,)
        assert timestep.max() < 7
        return SimpleNamespace(sample=self.linear(sample) + encoder_hidden_states.mean())


OTHERS = {
    "pixels": lambda: BenchmarkModel(Pixels(), 5, Features((3, 2, 4)), positions=(2, 4)),
    "denoiser": lambda: BenchmarkModel(
        Denoiser(), 0, Features((4,)), {"timestep": Integers(7), "encoder_hidden_states": Features((2, 4))}
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_models_for_images_have_their_own_inputs_and_losses(name, monkeypatch):
    monkeypatch.setitem(small.MODELS, name, OTHERS[name])
    monkeypatch.setattr(small, "WITHOUT_TOKENS", (*small.WITHOUT_TOKENS, name))
    task = Training(Workload(name, "training", "float32", "cpu", 3, 0, 6, "sgd"))
    batch = task.batches[0]
    output = task.program.model(batch.inputs, **batch.more)
    if name == "pixels":
        expected = torch.nn.functional.cross_entropy(output["out"], batch.targets)
    else:
        expected = torch.nn.functional.mse_loss(output.sample, batch.targets)
    torch.testing.assert_close(task.step(task.program, 0), expected.detach())
    assert task.items == 3
    assert task.batches[4] is batch  # images of all steps would take gigabytes
    outside = Training(Workload(name, "training", "float32", "cpu", 3, 0, 6, "sgd", loss="outside"))
    torch.testing.assert_close(outside.step(outside.program, 0), expected.detach())


def test_dropout_of_the_suite_is_not_disabled():
    with_dropout = catalogue.make("bert-large-small", TINY).module
    without = catalogue.make("hf:bert", TINY | {"pad_token_id": 0}).module
    probabilities = [
        {m.p for m in module.modules() if isinstance(m, torch.nn.Dropout)} for module in (with_dropout, without)
    ]
    assert probabilities == [{0.1}, {0.0}]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.slow
def test_generation_is_that_of_eager(cache):
    eager = Generation(replace(GENERATED, kv_cache=cache))
    expected = eager.step(eager.compile("eager"), 0)
    thunder = Generation(replace(GENERATED, kv_cache=cache))
    tokens = thunder.step(thunder.compile("thunder[]"), 0)
    assert tokens.shape == (2, 11)
    torch.testing.assert_close(tokens, expected)
    assert thunder.loss(tokens, 0) == eager.loss(expected, 0)
    wrong = tokens.clone()
    wrong[:, -1] = (wrong[:, -1] + 1) % 256
    assert thunder.loss(wrong, 0) > eager.loss(expected, 0)


@pytest.mark.slow
def test_torch_compile_generates_as_transformers_does_it():
    static = Generation(replace(GENERATED, kv_cache="static"))
    assert static.compile("compile-reduce-overhead") is static.program
    assert static.options["compile_config"].mode == "reduce-overhead"
    assert not static.options["disable_compile"]
    growing = Generation(GENERATED)
    assert growing.compile("compile").forward is not growing.eager
    assert growing.options["disable_compile"]


def test_generation_needs_a_method_for_it():
    with pytest.raises(UnknownModel, match="not nanogpt"):
        Generation(Workload("nanogpt", "generation", "float32", "cpu", 1, 6, 4, new_tokens=2, overrides=TINY))
