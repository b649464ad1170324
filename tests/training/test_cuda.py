"""Training on a GPU against eager: layers, autocast by operator, dropout, GradScaler. Skipped without one."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import thunder
from tests.passes.test_explicit_autocast_operators import operators_with_a_kernel
from thunder_core.ir.tree import map_leaves
from thunder_testing.opinfo import OPERATORS
from thunder_testing.opinfo_samples import sample_inputs

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]
SAMPLES = 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.body, x, use_reentrant=False) + x


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout2d(0.2),
        nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, batch_first=True), (2, 6, 16)),
    "encoder without dropout": (lambda: nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), (2, 6, 16)),
    "convolutional": (convolutional, (4, 3, 12, 12)),
    "recurrent": (Recurrent, (2, 6, 16)),
    "checkpointed": (Checkpointed, (4, 16)),
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5)), (8, 16)),
}


def train(model: nn.Module, program: Any, shape: tuple[int, ...], dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Three steps; losses, parameters and buffers."""
    torch.manual_seed(0)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16, init_scale=128.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        x = torch.randn(shape, device="cuda")
        with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = program(x).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return [*losses, *(tensor.detach().clone() for tensor in model.state_dict().values())]


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_module(name: str, dtype: torch.dtype | None) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(1)
    model = make().cuda().train()
    other = copy.deepcopy(model)
    expected, actual = train(model, model, shape, dtype), train(other, thunder.jit(other), shape, dtype)
    tolerance = 1e-5 if dtype is None else 2e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_draws_what_eager_draws(p: float) -> None:
    x = torch.randn(64, 33, device="cuda", requires_grad=True)
    program = lambda x: F.dropout(x * 2, p) + F.dropout(x.t(), p).t()  # noqa: E731
    results = []
    for function in (program, thunder.jit(program)):
        torch.manual_seed(0)
        output = function(x)
        results.append((output, *torch.autograd.grad(output.square().sum(), x)))
    torch.testing.assert_close(*results)  # executors may round otherwise; other random numbers would be far off


@pytest.mark.parametrize("name", operators_with_a_kernel("cuda"))
def test_autocast_of_an_operator(name: str) -> None:
    """The dtypes of outputs and gradients are eager's, and so are values within the dtype's precision."""
    operator = OPERATORS[name]
    for dtype, given in itertools.product((torch.bfloat16, torch.float16), (torch.float32, None)):
        for sample in itertools.islice(sample_inputs(operator, "cuda", torch.float32), SAMPLES):
            given_dtype = given or dtype

            def convert(leaf: Any, given_dtype: torch.dtype = given_dtype) -> Any:
                floating = isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point
                return leaf.detach().to(given_dtype).requires_grad_() if floating else leaf

            args, kwargs = map_leaves(convert, ((sample.input, *sample.args), sample.kwargs))
            _compare(operator.op, args, kwargs, dtype)


def _compare(function: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> None:
    def program(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cuda", dtype):
            return function(*args, **kwargs)

    try:
        expected = _run(program, args, kwargs)
    except (RuntimeError, NotImplementedError):
        return  # eager refuses it
    actual = _run(thunder.jit(program), args, kwargs)
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2, equal_nan=True)


def _run(program: Any, args: Any, kwargs: Any) -> list[torch.Tensor | None]:
    torch.manual_seed(0)
    outputs = [leaf for leaf in tree_leaves(program(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    sources = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    found = [output for output in outputs if output.requires_grad]
    gradients: tuple[Any, ...] = ()
    if found and sources:
        loss = torch.stack(
            [output.float().sum() if not output.is_complex() else output.abs().sum() for output in found]
        )
        gradients = torch.autograd.grad(loss.sum(), sources, allow_unused=True)
    values = [*outputs, *gradients]
    return [None if value is None else value.detach() for value in values]
