"""PyTorch's attention modules without gradients: the path of eager, with its strides, padding and masked rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import thunder

pytestmark = [  # PyTorch's warnings about these calls
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage"),
    pytest.mark.filterwarnings("ignore:Support for mismatched"),
    pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented"),
]

BATCH, LENGTH, WIDTH = 3, 5, 8


@contextmanager
def slow_path() -> Iterator[None]:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@contextmanager
def autocast() -> Iterator[None]:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        yield


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode, "slow path": slow_path,
    "autocast": autocast,
}  # fmt: skip


def padding(*lengths: int) -> torch.Tensor:
    return torch.arange(LENGTH) >= torch.tensor(lengths)[:, None]


PADDING = {
    "none": None,
    "left": padding(3, 4, 5),
    "right": padding(3, 4, 5).flip(1),
    "nothing left": padding(0, 3, 5),
    "float": torch.zeros(BATCH, LENGTH).masked_fill(padding(3, 4, 4), -torch.inf),
}
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


def layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, **{"batch_first": True, **options}).eval()


def stack(**options: Any) -> nn.Module:
    return nn.TransformerEncoder(layer(), 2, nn.LayerNorm(WIDTH), **options).eval()


class Attention(nn.Module):
    """Self-attention that returns its weights."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.options = options

    def forward(self, x: torch.Tensor, **masks: Any) -> Any:
        renamed = {"src_key_padding_mask": "key_padding_mask", "src_mask": "attn_mask"}
        return self.attention(x, x, x, **{renamed[name]: mask for name, mask in masks.items()}, **self.options)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: Attention().eval(),
    "without weights": lambda: Attention(need_weights=False).eval(),
    "weights by head": lambda: Attention(average_attn_weights=False).eval(),
    "training": lambda: Attention(need_weights=False).train(),
    "layer": layer,
    "norm first": lambda: layer(norm_first=True, activation="gelu"),
    "batch second": lambda: layer(batch_first=False),
    "encoder": stack,
    "not nested": lambda: stack(enable_nested_tensor=False),
    "not checked": lambda: stack(mask_check=False),
}


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif expected is None:
        assert found is None
    else:
        torch.testing.assert_close(found, expected, equal_nan=True, check_stride=True)
        assert found.requires_grad == expected.requires_grad


TYPICAL = [*((name, "no_grad") for name in MODULES), *(("layer", mode) for mode in MODES if mode != "no_grad")]


@pytest.mark.parametrize(("name", "mode"), TYPICAL)
@pytest.mark.slow
def test_each_module_and_each_mode(name: str, mode: str) -> None:
    check_module(name, mode)


@pytest.mark.parametrize(("name", "mode"), [pair for pair in itertools.product(MODULES, MODES) if pair not in TYPICAL])
@pytest.mark.battery
def test_modules(name: str, mode: str) -> None:
    check_module(name, mode)


def check_module(name: str, mode: str) -> None:
    """With each padding, one after the other."""
    torch.manual_seed(0)
    module = MODULES[name]()
    compiled = thunder.jit(module)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    if name == "batch second":
        x = x.transpose(0, 1)
    with MODES[mode]():
        for mask in PADDING.values():
            arguments = {} if mask is None else {"src_key_padding_mask": mask}
            try:
                expected = module(x, **arguments)
            except RuntimeError:  # nested tensors under autocast
                with pytest.raises(RuntimeError):
                    compiled(x, **arguments)
            else:
                assert_same(compiled(x, **arguments), expected)


@pytest.mark.parametrize("mask", PADDING)
@pytest.mark.parametrize("name", ["attention", "without weights", "layer", "norm first"])
@pytest.mark.battery
def test_two_masks(name: str, mask: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    x = torch.randn(BATCH, LENGTH, WIDTH).transpose(0, 1).contiguous().transpose(0, 1)
    arguments = {"src_mask": CAUSAL, "src_key_padding_mask": PADDING[mask]}
    with torch.no_grad():
        assert_same(thunder.jit(module)(x, **arguments), module(x, **arguments))


class Through(nn.TransformerEncoderLayer):
    """A layer that returns its input."""

    def forward(self, src: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return src


@pytest.mark.parametrize("mask", ["none", "left", "right"])
def test_layers_that_return_their_input(mask: str) -> None:
    module = nn.TransformerEncoder(Through(WIDTH, 2, 16, 0.0, batch_first=True), 2).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        expected = module(x, src_key_padding_mask=PADDING[mask])
        found = thunder.jit(module)(x, src_key_padding_mask=PADDING[mask])
    assert_same(found, expected)
    assert (found is x) == (expected is x)


ENCODERS_THAT_RAISE: dict[str, Callable[[], nn.Module]] = {
    "no layers": lambda: nn.TransformerEncoder(layer(), 0).eval(),
    "other width": lambda: nn.TransformerEncoder(layer(), 2, nn.LayerNorm(WIDTH + 2)).eval(),
}


@pytest.mark.parametrize("mask", ["none", "right"])
@pytest.mark.parametrize("name", ENCODERS_THAT_RAISE)
def test_errors_are_those_of_eager(name: str, mask: str) -> None:
    module, x = ENCODERS_THAT_RAISE[name](), torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        with pytest.raises(Exception) as expected:
            module(x, src_key_padding_mask=PADDING[mask])
        with pytest.raises(expected.type) as found:
            thunder.jit(module)(x, src_key_padding_mask=PADDING[mask])
    assert str(found.value) == str(expected.value)


class Classifier(nn.Module):
    """An encoder of tokens with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, WIDTH)
        self.encoder = stack()
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0))


def test_one_entry_serves_all_paddings() -> None:
    model = Classifier().eval()
    compiled = thunder.jit(model)
    tokens = torch.randint(1, 10, (BATCH, LENGTH))
    with torch.no_grad():
        for mask in (padding(3, 4, 5), padding(3, 4, 5).flip(1), padding(2, 2, 2), padding(5, 5, 5)):
            padded = tokens.masked_fill(mask, 0)
            assert_same(compiled(padded), model(padded))
        assert thunder.cache_misses(compiled) == 1
        with slow_path():
            assert_same(compiled(tokens), model(tokens))
        assert thunder.cache_misses(compiled) == 2


class PassesThrough(nn.TransformerEncoderLayer):
    def forward(self, src: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return src


def test_layers_that_return_what_they_are_given() -> None:
    """Where padding is left out, the result is made anew whatever the layers do: it is contiguous."""
    model = nn.TransformerEncoder(PassesThrough(WIDTH, 2, 16, dropout=0.0, batch_first=True), 1).eval()
    x, mask = torch.randn(LENGTH, BATCH, WIDTH).transpose(0, 1), padding(3, 4, 4)
    with torch.no_grad():
        assert_same(thunder.jit(model)(x, src_key_padding_mask=mask), model(x, src_key_padding_mask=mask))


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["head", "head and norm", "all"])
def test_training_around_an_encoder(trained: str) -> None:
    tokens = torch.randint(1, 10, (BATCH, LENGTH)).masked_fill(padding(3, 4, 5), 0)
    model, other = Classifier().eval(), Classifier().eval()
    other.load_state_dict(model.state_dict())
    for one in (model, other):
        one.requires_grad_(trained == "all")
        one.head.requires_grad_(True)
        one.encoder.norm.requires_grad_(trained != "head")
    expected, found = model(tokens), thunder.jit(other)(tokens)
    assert_same(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(two.grad, one.grad)


def test_vmap() -> None:
    module = nn.MultiheadAttention(WIDTH, 2, batch_first=True).eval()
    program = torch.vmap(lambda x: module(x, x, x, key_padding_mask=PADDING["nothing left"])[0])
    x = torch.randn(2, BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        assert_same(thunder.jit(program)(x), program(x))


def of_encoder() -> tuple[nn.Module, Callable[..., Any]]:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2), lambda model, x, mask: model(x, mask=mask)


def of_decoder() -> tuple[nn.Module, Callable[..., Any]]:
    layer = nn.TransformerDecoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerDecoder(layer, 2), lambda model, x, mask: model(x, x.flip(1), tgt_mask=mask)


def of_both() -> tuple[nn.Module, Callable[..., Any]]:
    model = nn.Transformer(WIDTH, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    return model, lambda model, x, mask: model(x, x.flip(1), src_mask=mask, tgt_mask=mask)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [of_encoder, of_decoder, of_both])
@pytest.mark.slow
def test_masks_that_are_known_when_the_program_runs(kind: Any, training: bool, grad: bool) -> None:
    """Eager checks whether a mask is causal; one program serves causal masks and others."""
    torch.manual_seed(0)
    model, call = kind()
    model.train(training)
    compiled = thunder.jit(model)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    causal = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    for mask in (causal, causal.T.contiguous(), causal):
        with torch.set_grad_enabled(grad):
            found, expected = call(compiled, x, mask), call(model, x, mask)
        torch.testing.assert_close(found, expected)
        if grad:
            gradients = [torch.autograd.grad(out.sin().sum(), list(model.parameters())) for out in (found, expected)]
            torch.testing.assert_close(*gradients)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 2)


def test_an_encoder_whose_source_is_a_keyword():
    encoder = nn.TransformerEncoder(layer(), 1, enable_nested_tensor=False).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        torch.testing.assert_close(thunder.jit(encoder)(src=x), encoder(src=x))
