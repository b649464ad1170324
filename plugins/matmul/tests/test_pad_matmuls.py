"""Matmuls whose rows are not aligned, on padded operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_matmul import PadMatmuls, pad_matmuls

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: the CPU runs what a GPU would")


def padded(function: Callable[..., Any], *args: torch.Tensor | None) -> Trace:
    """The program after the pass, whose results are those of ``function``."""
    acquired = front_end.record(function, args, {})
    after = PadMatmuls().run(acquired.trace, TransformContext(Phase.INFERENCE))
    verify(after)
    results, expected = (compile_trace(trace)(*acquired.inputs) for trace in (after, acquired.trace))
    for found, wanted in zip(results, expected, strict=True):
        assert (found.shape, found.stride(), found.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2, equal_nan=True)
    return after


def half(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape).to(dtype) / 4


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every matmul that can be padded is worth it, however small, and also on the CPU."""
    monkeypatch.setattr(pad_matmuls, "_DEVICE", "cpu")
    monkeypatch.setattr(pad_matmuls, "_BYTES", 1e30)


LINEAR = lambda x, w, b: F.linear(x, w, b)  # noqa: E731


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("function", "shapes", "product"),
    [
        pytest.param(LINEAR, [(16, 24), (33, 24), (33,)], (16, 24, 40), id="columns of the result"),
        pytest.param(LINEAR, [(16, 23), (32, 23), (32,)], (16, 24, 32), id="the summed dimension"),
        pytest.param(LINEAR, [(5, 23), (33, 23), None], (5, 24, 40), id="both, and no bias"),
        pytest.param(LINEAR, [(2, 3, 24), (33, 24), (33,)], (6, 24, 40), id="a batch"),
        pytest.param(torch.mm, [(16, 23), (23, 33)], (16, 24, 40), id="a product of matrices"),
        pytest.param(torch.matmul, [(2, 8, 33), (33, 24)], (16, 40, 24), id="a batch by a matrix"),
        pytest.param(lambda a, b: a.t() @ b, [(16, 33), (16, 24)], (40, 16, 24), id="a transpose"),
        pytest.param(lambda a, b: a.t() @ b.t(), [(15, 33), (24, 15)], (40, 16, 24), id="two transposes"),
        pytest.param(lambda a, b: a.t() @ b, [(15, 33), (15, 24)], (40, 15, 24), id="sums over rows in memory"),
        pytest.param(lambda a, b: a.flatten(0, 1).t() @ b, [(2, 8, 33), (16, 24)], (40, 16, 24), id="a view"),
        pytest.param(LINEAR, [(1, 24), (33, 24), None], (1, 24, 40), id="a vector"),
    ],
)
def test_operands_are_padded(function: Any, shapes: list[Any], product: tuple[int, int, int]) -> None:
    trace = padded(function, *[shape and half(*shape) for shape in shapes])
    (op,) = [op for op in trace.symbols if op.symbol.name in ("torch.nn.functional.linear", "torch.mm")]
    one, other = op.args[:2]
    columns = other.shape[0] if op.symbol.name.endswith("linear") else other.shape[1]
    assert (*one.shape, columns) == product


@pytest.mark.usefixtures("everywhere")
def test_padding_holds_no_numbers() -> None:
    """Infinities times zeros of the padding would be NaN."""
    x, w = half(8, 23), half(33, 23)
    x[0, 0], w[1, 1] = float("inf"), float("nan")
    padded(F.linear, x, w)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("function", "args"),
    [
        pytest.param(torch.mm, (torch.randn(8, 33), torch.randn(33, 8)), id="float32"),
        pytest.param(torch.mm, (half(33, 16), half(16, 24)), id="rows are aligned"),
        pytest.param(torch.bmm, (half(2, 8, 33), half(2, 33, 8)), id="matrices in pairs"),
        pytest.param(lambda a, b: a[:, ::2] @ b, (half(8, 46), half(23, 8)), id="rows with gaps"),
        pytest.param(torch.mv, (half(8, 33), half(33)), id="a vector"),
        pytest.param(torch.mm, (half(8, 0), half(0, 9)), id="nothing to add"),
    ],
)
def test_what_stays(function: Any, args: tuple[torch.Tensor, ...]) -> None:
    assert not any(op.symbol.name.endswith("pad") for op in padded(function, *args).symbols)


def test_a_cpu_needs_no_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pad_matmuls, "_BYTES", 1e30)
    assert not any(op.symbol.name.endswith("pad") for op in padded(torch.mm, half(8, 33), half(33, 8)).symbols)


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "worth"),
    [(8192, 1024, 50257, True), (8192, 1024, 30522, True), (8192, 1024, 50264, False), (64, 2048, 1001, False)],
)
def test_small_matmuls_are_not_worth_it(rows: int, inner: int, columns: int, worth: bool) -> None:
    trace = front_end.record(F.linear, (half(8, 8), half(8, 8)), {}).trace
    x, w = trace.inputs
    x, w = replace(x, shape=(rows, inner), stride=(inner, 1)), replace(w, shape=(columns, inner), stride=(inner, 1))
    one, other = pad_matmuls._Operand(x, False), pad_matmuls._Operand(w, True)
    assert pad_matmuls._Product((), one, other, None).is_worth_padding() is worth


@pytest.mark.usefixtures("everywhere")
def test_one_padding_serves_both_gradients() -> None:
    """A weight's and an input's gradient read one padded cotangent, in another shape each."""

    def gradients(g: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> Any:
        g = g * 2
        return g @ w, g.reshape(6, 33).t() @ x

    trace = padded(gradients, half(2, 3, 33), half(33, 24), half(6, 24))
    sources = [op.args[0].name for op in trace.symbols if op.symbol.name.endswith("pad") and op.args[1] == (0, 7)]
    assert len(sources) == 2
    assert len(set(sources)) == 1


@CUDA
@pytest.mark.parametrize("autocast", [True, False])
def test_training_on_a_gpu(autocast: bool) -> None:
    dtype = torch.float32 if autocast else torch.bfloat16
    model = nn.Sequential(nn.Embedding(4001, 1024), nn.Linear(1024, 4001)).to("cuda", dtype)
    ids = torch.randint(0, 4001, (8, 1024), device="cuda")

    def step(function: Any) -> list[torch.Tensor]:
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(function(ids).flatten(0, 1).float(), ids.flatten())
        loss.backward()
        return [loss.detach(), *[parameter.grad for parameter in model.parameters()]]

    compiled = thunder.jit(model)
    found, expected = step(compiled), step(model)
    assert "pad(" in "".join(trace.python() for trace in thunder.last_traces(compiled))
    for one, other in zip(found, expected, strict=True):
        assert one.is_contiguous()
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-3)
