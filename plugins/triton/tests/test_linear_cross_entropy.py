"""Linear layer and cross entropy together, in one chunk of tokens, in two, and in many."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import DEVICE, assert_as_accurate_as_eager, table

import thunder
from thunder_plugin_triton import linear_cross_entropy_chunks as chunks
from thunder_plugin_triton import linear_cross_entropy_claims
from thunder_plugin_triton.options import TritonOptions

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOKENS, WIDTH, CLASSES = 11, 6, 37
NAME = "linear_cross_entropy"


@pytest.fixture(params=[2048, 6, 2], ids=["one chunk", "two chunks", "many chunks"])
def smallest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The least number of tokens in a chunk; the place of the number in the list."""
    monkeypatch.setattr(chunks, "SMALLEST", request.param)
    return int(request.param_index)


def tensors(dtype: torch.dtype = torch.float32, tokens: int = TOKENS) -> tuple[torch.Tensor, ...]:
    """Input, weight, target."""
    x, weight = torch.randn(tokens, WIDTH), torch.randn(CLASSES, WIDTH)
    target = torch.randint(0, CLASSES, (tokens,), device=DEVICE)
    target[1] = -100
    return x.to(DEVICE, dtype), weight.to(DEVICE, dtype), target


OPTIONS: tuple[dict[str, Any], ...] = ({}, {"reduction": "sum", "label_smoothing": 0.1})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.slow
def test_accuracy(smallest: int, dtype: torch.dtype) -> None:
    """Of chunks, dtypes and options all pairs, and not all triples."""
    x, weight, target = tensors(dtype)
    options = OPTIONS[(smallest + DTYPES.index(dtype)) % len(OPTIONS)]

    def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(x, weight), target, **options)

    compiled = assert_as_accurate_as_eager(loss, x, weight, target, name=NAME)
    whole = f"[{TOKENS}, {CLASSES}]"
    traces = (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1])
    assert not [trace for trace in traces if whole in str(trace)]


@pytest.mark.slow
def test_bias_weights_and_conversion(smallest: int) -> None:
    x, weight, target = tensors(torch.bfloat16)
    bias, class_weight = torch.randn(CLASSES, device=DEVICE).bfloat16(), torch.rand(CLASSES, device=DEVICE)

    def loss(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        logits = F.linear(x.view(1, TOKENS, WIDTH), weight, bias)
        logits = logits.to(torch.promote_types(torch.float32, logits.dtype)).view(-1, CLASSES)
        return F.cross_entropy(logits, target, class_weight.to(logits.dtype))

    assert_as_accurate_as_eager(loss, x, weight, bias, name=NAME)


POSITIONS = ((None, -1), (-2, None), (1, 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.slow
def test_positions_without_logits(smallest: int, dtype: torch.dtype) -> None:
    """Positions whose logits the program leaves out get zeros. Of chunks, dtypes and positions all pairs."""
    start, stop = POSITIONS[(smallest + DTYPES.index(dtype)) % len(POSITIONS)]
    x, weight, _ = tensors(dtype, tokens=12)
    target = torch.randint(0, CLASSES, (3, 4), device=DEVICE)[:, start:stop].reshape(-1)

    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        logits = F.linear(x, weight)[:, start:stop]
        return F.cross_entropy(logits.reshape(-1, CLASSES), target)

    assert_as_accurate_as_eager(loss, x.view(3, 4, WIDTH), weight, name=NAME)


@pytest.mark.slow
def test_strides_of_inputs(smallest: int) -> None:
    x, weight, target = tensors(tokens=12)
    wide = torch.randn(3, 5, 2 * WIDTH, device=DEVICE)
    for rows in (x.view(4, 3, WIDTH).transpose(0, 1), wide[:, 1:, :WIDTH], wide[:, 1:, ::2]):
        leaves = rows.detach().requires_grad_(), weight.requires_grad_()
        compiled = thunder.jit(lambda x, w: F.cross_entropy(F.linear(x, w).flatten(0, 1), target), executors=["triton"])
        mine, eager = compiled(*leaves), loss_of(leaves[0].flatten(0, 1), weight, target)
        torch.testing.assert_close(torch.autograd.grad(mine, leaves), torch.autograd.grad(eager, leaves))
        assert "linear_cross_entropy" in table(compiled)


def loss_of(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, weight), target)


@pytest.mark.parametrize("frozen", [0, 1], ids=["input", "weight"])
def test_products_that_nobody_needs_are_not_made(frozen: int) -> None:
    x, weight, target = tensors()
    leaves = [each.requires_grad_(index != frozen) for index, each in enumerate((x, weight))]
    compiled = thunder.jit(loss_of, executors=["triton"])
    mine, eager = (torch.autograd.grad(program(*leaves, target), leaves[1 - frozen]) for program in (compiled, loss_of))
    torch.testing.assert_close(mine, eager)
    assert ("forward_of_weight", "forward_of_input")[frozen] in str(thunder.last_traces(compiled)[-1])


def test_backward_runs_again(smallest: int) -> None:
    x, weight, target = tensors()
    loss = thunder.jit(loss_of, executors=["triton"])(x.requires_grad_(), weight.requires_grad_(), target)
    first = torch.autograd.grad(loss, (x, weight), retain_graph=True)
    second = torch.autograd.grad(3 * loss, (x, weight))
    torch.testing.assert_close([3 * each for each in first], list(second))


def test_without_targets_and_without_gradients(smallest: int) -> None:
    torch.manual_seed(0)  # eager rounds the loss of each row to float16, by more than the tolerance for some numbers
    x, weight, target = tensors(torch.float16)
    target[:] = -100
    compiled = thunder.jit(loss_of, executors=["triton"])
    loss = compiled(x.requires_grad_(), weight.requires_grad_(), target)
    assert loss.isnan()
    assert not any(each.count_nonzero() for each in torch.autograd.grad(loss, (x, weight)))
    target[:] = 3
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight, target), loss_of(x, weight, target))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_targets_without_weight(dtype: torch.dtype) -> None:
    """A mean over weights that are 0 has no gradient; in ignored rows it is 0 even so."""
    x, weight, target = tensors(dtype)
    nothing = torch.zeros(CLASSES, device=DEVICE, dtype=dtype)

    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(x, weight), target, nothing)

    leaves = x.requires_grad_(), weight.requires_grad_()
    mine, eager = (torch.autograd.grad(run(*leaves), x)[0] for run in (thunder.jit(loss, executors=["triton"]), loss))
    assert torch.equal(mine.isnan(), eager.isnan())
    assert not mine[1].count_nonzero()


def test_losses_of_rows_need_their_cotangents() -> None:
    def losses(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(x, weight), target, reduction="none")

    x, weight, target = tensors()
    compiled = thunder.jit(losses, executors=["triton"])
    torch.testing.assert_close(compiled(x, weight, target), losses(x, weight, target))
    assert "triton" in table(compiled)
    x.requires_grad_()
    loss = compiled(x, weight, target)
    cotangent = torch.randn_like(loss)
    torch.testing.assert_close(
        torch.autograd.grad(loss, x, cotangent), torch.autograd.grad(losses(x, weight, target), x, cotangent)
    )
    assert "thunder_plugin_triton.cross_entropy.forward" in str(thunder.last_traces(compiled)[-1])


@pytest.mark.skipif(not hasattr(F, NAME), reason="PyTorch has it since 2.13")
def test_pytorchs_own_function() -> None:
    x, weight, target = tensors()
    bias = torch.randn(CLASSES, device=DEVICE)

    def loss(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.linear_cross_entropy(x, weight, target, linear_bias=bias, label_smoothing=0.1)

    assert_as_accurate_as_eager(loss, x, weight, bias, name=NAME)


@pytest.mark.parametrize(
    ("tokens", "width", "accumulates", "size"),
    [
        (8192, 2048, True, 4096),  # two halves, without a sum in float32
        (16384, 2048, True, 2048),
        (5000, 2048, False, 1667),
        (2048, 2048, True, 2048),
        (1, 64, True, 1),
    ],
)
def test_sizes_of_chunks(tokens: int, width: int, accumulates: bool, size: int) -> None:
    assert chunks.chunk_size(tokens, width, accumulates=accumulates) == size


def test_the_function_is_claimed_where_pytorch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.11 has no `torch.nn.functional.linear_cross_entropy`."""
    targets = [claim.symbol for claim in linear_cross_entropy_claims.claims(TritonOptions())]
    assert targets[1:] == [F.linear_cross_entropy] * hasattr(F, "linear_cross_entropy")
    monkeypatch.setattr(linear_cross_entropy_claims, "_IN_PYTORCH", None)
    assert [claim.symbol for claim in linear_cross_entropy_claims.claims(TritonOptions())] == targets[:1]
