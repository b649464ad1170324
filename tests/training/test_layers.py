"""Layers of PyTorch in training mode: outputs, gradients, buffers and random numbers equal eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from tests.subjects import eager
from tests.training.steps import LOW_PRECISION, assert_same, assert_same_training, detached, leaf


def image() -> tuple[torch.Tensor]:
    return (leaf(2, 3, 6, 6),)


def rows() -> tuple[torch.Tensor]:
    return (leaf(5, 4),)


def sequence() -> tuple[torch.Tensor]:
    return (leaf(2, 5, 4),)


def words() -> tuple[torch.Tensor]:
    return (torch.randint(7, (3, 5)),)


class SelfAttention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)
        self.register_buffer("mask", torch.ones(5, 5, dtype=torch.bool).triu(1))

    def forward(self, x: torch.Tensor, need_weights: bool = True) -> Any:
        return self.attention(x, x, x, attn_mask=self.mask, need_weights=need_weights)


class Flatten(nn.Module):
    """The tensors of a recurrent layer's output, one after the other."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any) -> Any:
        return torch.utils._pytree.tree_leaves(self.layer(*args))


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "linear": (lambda: nn.Linear(4, 3), rows),
    "bilinear": (lambda: nn.Bilinear(4, 4, 3), lambda: rows() * 2),
    "conv1d": (lambda: nn.Conv1d(5, 3, 3, padding="same"), sequence),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(inplace=True), nn.Conv2d(6, 6, 1)), image),
    "conv2d circular": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), image),
    "conv transpose": (lambda: nn.ConvTranspose2d(3, 6, 3, stride=2, groups=3), image),
    "pooling": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten()), image),
    "fractional pooling": (lambda: nn.FractionalMaxPool2d(2, output_size=3), image),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)),
                   image),
    "batch norm, cumulative average": (lambda: nn.BatchNorm1d(4, momentum=None), rows),
    "batch norm, cumulative average inside": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None), nn.Tanh()), rows),
    "batch norm, no statistics": (lambda: nn.BatchNorm1d(4, track_running_stats=False), rows),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), image),
    "group norm": (lambda: nn.GroupNorm(3, 3), image),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(4), nn.RMSNorm(4)), sequence),
    "local response norm": (lambda: nn.LocalResponseNorm(2), image),
    "dropouts": (lambda: nn.Sequential(nn.Dropout(0.3), nn.Dropout2d(0.5), nn.AlphaDropout(0.2)), image),
    "feature dropout": (lambda: nn.FeatureAlphaDropout(0.4), image),
    "rrelu": (lambda: nn.Sequential(nn.RReLU(), nn.PReLU(), nn.ELU(inplace=True)), rows),
    "activations": (lambda: nn.Sequential(nn.Hardswish(), nn.Mish(), nn.GLU(), nn.Softplus(), nn.Softmax(-1)), rows),
    "rnn": (lambda: Flatten(nn.RNN(4, 3, batch_first=True, nonlinearity="relu")), sequence),
    "lstm": (lambda: Flatten(nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True, dropout=0.4)), sequence),
    "lstm, projected": (lambda: Flatten(nn.LSTM(4, 3, proj_size=2, batch_first=True)), sequence),
    "gru": (lambda: Flatten(nn.GRU(4, 3, batch_first=True)), lambda: (*sequence(), leaf(1, 2, 3))),
    "lstm cell": (lambda: Flatten(nn.LSTMCell(4, 3)), rows),
    "attention": (SelfAttention, sequence),
    "attention, no weights": (lambda: SelfAttention(dropout=0.2), lambda: (*sequence(), False)),
    "attention, bias rows": (lambda: SelfAttention(add_zero_attn=True, add_bias_kv=True), sequence),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), sequence),
    "encoder, norm first": (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.3, "gelu", norm_first=True), sequence),
    "decoder": (lambda: nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), lambda: sequence() * 2),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=2), nn.Linear(4, 2)), words),
    "embedding, scaled": (lambda: nn.Embedding(7, 4, max_norm=1.0, scale_grad_by_freq=True), words),
    "embedding, sparse": (lambda: nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 2)), words),
    "embedding bag": (lambda: nn.EmbeddingBag(7, 4, mode="mean"), words),
    "embedding bag, sparse": (lambda: nn.EmbeddingBag(7, 4, mode="sum", sparse=True), words),
    "embedding bag, maximum": (lambda: nn.EmbeddingBag(7, 4, mode="max"), words),
    "upsample": (lambda: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(1)), image),
    "fold": (lambda: nn.Sequential(nn.Unfold(3), nn.Fold((6, 6), 3)), image),
}  # fmt: skip


OF_EACH_KIND = (
    "conv2d", "batch norm, cumulative average inside", "instance norm", "dropouts", "rrelu", "lstm", "gru",
    "attention, bias rows", "encoder, norm first", "embedding, scaled", "embedding, sparse", "embedding bag, maximum",
)  # fmt: skip
"""With statistics, random numbers, lists of weights, masks, weights that are scaled, and gradients that are sparse."""


@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.slow
def test_a_layer_of_each_kind(name: str) -> None:
    check_layer(name)


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # eager warns as well
@pytest.mark.parametrize("name", [name for name in LAYERS if name not in OF_EACH_KIND])
@pytest.mark.battery
def test_layer(name: str) -> None:
    check_layer(name)


def check_layer(name: str) -> None:
    """Three steps: statistics and random numbers go on from the step before."""
    assert_same_training(*LAYERS[name], steps=3)


DTYPES = torch.float64, torch.bfloat16, torch.float16


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_layer_of_each_dtype(dtype: torch.dtype) -> None:
    check_dtype("batch norm", dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["conv2d", "lstm", "encoder", "embedding", "layer norm"])
@pytest.mark.battery
def test_layer_of_another_dtype(name: str, dtype: torch.dtype) -> None:
    check_dtype(name, dtype)


def check_dtype(name: str, dtype: torch.dtype) -> None:
    make, inputs = LAYERS[name]

    def converted() -> tuple[torch.Tensor, ...]:
        return tuple(x.detach().to(dtype).requires_grad_() if x.is_floating_point() else x for x in inputs())

    assert_same_training(lambda: make().to(dtype), converted, comparison=LOW_PRECISION)


@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format], ids=str)
def test_memory_format(format: torch.memory_format) -> None:
    """Outputs, and gradients of parameters, have eager's strides."""

    def scenario(model: Any) -> Any:
        x = torch.randn(2, 3, 6, 6).to(memory_format=format).requires_grad_()
        output = model(x)
        output.square().sum().backward()
        return x, output

    make = lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).to(memory_format=format)  # noqa: E731
    assert_same(make, scenario)


def test_statistics_are_copied_once() -> None:
    """Forward copies what `batch_norm` writes, the derivative nothing more; reports name the function."""
    model = thunder.jit(nn.BatchNorm1d(4))
    model(torch.randn(3, 4)).sum().backward()
    forward = str(thunder.last_traces(model)[-1])
    assert "functional_call(torch.native_batch_norm, " in forward
    assert "torch.clone(" not in forward
    assert "1 x torch.native_batch_norm " in thunder.explain(model).details()


def test_the_backward_uses_the_mask_of_its_forward() -> None:
    """Also when other random numbers are drawn between forward and backward, and the state afterwards is eager's."""

    def scenario(model: Any) -> Any:
        x, y = leaf(4, 8), leaf(4, 8)
        first, second = model(x), model(y)
        torch.rand(3)
        torch.manual_seed(7)
        second.sum().backward()
        first.sum().backward()
        kept = [(output.detach() != 0) == (tensor.grad != 0) for output, tensor in ((first, x), (second, y))]
        return x, y, detached((first, second)), [bool(k.all()) for k in kept]

    assert_same(lambda: nn.Sequential(nn.Dropout(0.5), nn.Identity()), scenario)


def test_dropout_after_a_seed_inside_the_scenario() -> None:
    def scenario(model: Any) -> Any:
        outputs = []
        for seed in (3, 4, 3):
            torch.manual_seed(seed)
            outputs.append(model(torch.ones(4, 8)))
        assert torch.equal(outputs[0], outputs[2])
        assert not torch.equal(outputs[0], outputs[1])
        return detached(outputs)

    assert_same(lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), scenario)


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 4))

    def forward(self, indices: torch.Tensor) -> Any:
        offsets, weights = torch.tensor([0, 4, 4]), torch.linspace(0, 1, indices.numel())
        summed = F.embedding_bag(indices.view(-1), self.table, offsets, mode="sum", per_sample_weights=weights)
        return summed, F.one_hot(indices, 7).float() @ self.table, F.embedding(indices, self.table, sparse=False)


def test_functional_embeddings() -> None:
    assert_same_training(Bags, words)


@pytest.mark.parametrize("grad", [False, True])
def test_a_cumulative_average_is_compiled_once_for_all_batches(grad: bool) -> None:
    """As `torch.optim.swa_utils.update_bn` calls a module: its momentum depends on the number of batches."""
    make = lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4, momentum=None), nn.Tanh())  # noqa: E731
    modules = []
    for wrap in (eager, thunder.jit):
        torch.manual_seed(0)
        modules.append(wrap(make()))
    for rows in (5, 5, 5, 3, 6, 4):
        x, results = torch.randn(rows, 4), []
        for module in modules:
            module.zero_grad()
            with torch.set_grad_enabled(grad):
                results.append([module(x)])
            if grad:
                results[-1][0].square().sum().backward()
                results[-1] += [parameter.grad for parameter in module.parameters()]
            results[-1] += map(torch.clone, module.buffers())
        torch.testing.assert_close(*results)
    assert thunder.cache_misses(modules[1]) == 2
