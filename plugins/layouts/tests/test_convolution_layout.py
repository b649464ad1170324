"""Convolutions work on memory with channels last where that needs few copies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_core.symbols.registry import registry
from thunder_frontend.record.front_end import front_end
from thunder_plugin_layouts.convolution_layout import ConvolutionLayout
from thunder_testing import Comparison, assert_same_behaviour
from thunder_testing.compare import Arguments
from thunder_testing.pointwise import Pointwise

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN")

# Weights that keep the scale of values: rounding is no larger after five convolutions.
X, W, V = torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 3) / 27**0.5, torch.randn(4, 4, 3, 3) / 6


def formats(trace: Trace) -> list[bool]:
    """Whether each convolution of a trace gives channels last, also inside of a program that may be captured."""
    ops = [line for op in trace.symbols for line in (op.parts if Tag.RUNS_PARTS in op.symbol.tags else (op,))]
    lines = [line for line in ops if Tag.CONVOLUTION in line.symbol.tags]
    return [line.output.stride[1] == 1 for line in lines]


def moved(program: Callable[..., Any], *args: torch.Tensor) -> list[bool]:
    """The convolutions after the pass, which changes neither values nor strides of results."""
    acquired = front_end.record(program, args, {})
    after = ConvolutionLayout().run(acquired.trace, TransformContext(Phase.INFERENCE))
    verify(after)
    before, now = (compile_trace(trace)(*acquired.inputs) for trace in (acquired.trace, after))
    for old, new in zip(before, now, strict=True):
        assert new.stride() == old.stride()
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-5)
    return formats(after)


def two(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.conv2d(F.conv2d(x, w, padding=1).relu(), v)


def between(step: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = step(F.conv2d(x, w, padding=1))
        for _ in range(5):
            y = F.conv2d(y, v, padding=1)
        return y.mean((2, 3))

    return program


@pytest.mark.parametrize(
    "step",
    [
        lambda y: y.relu() + y.sigmoid() * 2,
        lambda y: F.max_pool2d(F.avg_pool2d(y, 2, 1), 2, 1),
        lambda y: F.adaptive_avg_pool2d(y, (3, 4)),
        lambda y: F.batch_norm(y, None, None, training=True),
        lambda y: y.flip(2),  # copied there and back
        lambda y: (y.flip(2) + y).transpose(2, 3).contiguous(),
        lambda y: y * torch.ones(2, 4, 1, 1),
    ],
)
def test_what_lies_between(step: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert moved(between(step), X, W, V) == [True] * 6


@pytest.mark.parametrize(
    "reduced",
    [
        lambda y: y.mean((2, 3), keepdim=True),
        lambda y: F.adaptive_avg_pool2d(y, 1),
        lambda y: F.conv2d(F.relu(F.adaptive_avg_pool2d(y, 1)), torch.eye(4)[..., None, None]),
        lambda y: y.amax((2, 3), keepdim=True),
        lambda y: F.conv2d(y.mean((2, 3), keepdim=True), torch.eye(4)[..., None, None]),
        lambda y: y.sum((2, 3))[..., None, None],
        lambda y: y.std(0)[None].mean((2, 3), keepdim=True),
    ],
)
def test_squeeze_and_excitation_copies_no_image(reduced: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Depthwise convolutions, reductions and products with one number for each channel read channels last."""

    def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, w, padding=1)
        for _ in range(3):
            y = F.conv2d(y, v[:, :1], padding=1, groups=4)
            y = y * torch.sigmoid(reduced(y))
        return y

    formats_ = moved(program, X, W, V)
    assert len(formats_) >= 4
    assert all(formats_)


@pytest.mark.parametrize("groups", [1, 4])
def test_sizes_that_vary_stay(groups: int) -> None:
    """Images of varying sizes are not moved, and have one program."""
    weight = torch.randn(4, 4 // groups, 3, 3)
    program = thunder.jit(
        lambda x: F.conv2d(F.conv2d(x, weight, groups=groups).relu(), weight, groups=groups),
        executors=[Pointwise()],
        dynamic=True,
    )
    for size in (6, 8, 9):
        x = torch.randn(2, 4, size, size + 1)
        expected = F.conv2d(F.conv2d(x, weight, groups=groups).relu(), weight, groups=groups)
        torch.testing.assert_close(program(x), expected)
    assert len(thunder.explain(program).entries) == 1


@pytest.mark.parametrize(("size", "kernel", "expected"), [(32, 3, True), (4, 3, False), (4, 1, True)])
def test_weights_that_are_larger_than_images_stay(size: int, kernel: int, expected: bool) -> None:
    """Each call would convert them; those of one pixel have both formats."""
    x, w = torch.randn(2, 32, size, size), torch.randn(32, 32, kernel, kernel)

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = F.conv2d(x, w, padding=kernel // 2)
        return x.mean((2, 3))

    assert set(moved(program, x, w * 0.05)) == {expected}


def test_of_one_channel_either_format_is_the_other() -> None:
    assert moved(between(torch.relu), X[:, :1], W[:, :1], V) == [False] + [True] * 5


@pytest.mark.parametrize(
    ("program", "args"),
    [
        (lambda x, w, v: F.conv2d(x, w), (X, W, V)),  # as many copies as convolutions
        (two, (X, W, V)),
        (between(torch.relu), (X.double(), W.double(), V.double())),
        (lambda x, w, v: F.conv2d(F.conv2d(F.conv2d(x, v[:, :1], groups=4), v[:, :1], groups=4), v[:, :1], groups=4),
         (torch.randn(2, 4, 9, 9), W, V)),
        (lambda x, w, v: F.conv2d(F.conv2d(F.conv2d(x, w, padding=1).flip(2), v, padding=1).flip(2), v), (X, W, V)),
        (lambda x, w, v: F.conv2d(F.conv2d(F.conv2d(x, w[..., :1, :1]), v[..., :1, :1]), v[..., :1, :1]), (X, W, V)),
    ],
)  # fmt: skip
def test_what_stays(program: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> None:
    assert not any(moved(program, *args))


def test_a_value_that_is_returned_is_there_as_it_was() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.conv2d(x, w, padding=1).relu()
        for _ in range(4):
            y = F.conv2d(y, v, padding=1)
        return y, y.amax((2, 3)), x.sin()

    assert moved(program, X, W, V) == [True] * 5


POOLS = {
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
}


@pytest.mark.parametrize("name", POOLS)
def test_operators_keep_the_memory_format(name: str) -> None:
    """PyTorch's kernels return the memory format that the tag promises; executors rely on the strides in traces."""
    assert Tag.MEMORY_FORMAT in registry.symbol_of(getattr(F, name)).tags
    x = torch.randn(2, 4, 8, 8)
    assert POOLS[name](x).is_contiguous()
    last = x.contiguous(memory_format=torch.channels_last)
    assert POOLS[name](last).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(POOLS[name](last), POOLS[name](x))


class Residual(nn.Module):
    """With running statistics, in-place activations and a buffer that is counted up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.third = nn.Conv2d(16, 6, 1, stride=2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(16)])
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.norms[0](self.first(x)), inplace=True)
        y = y + self.norms[1](self.second(y))
        y.mul_(0.5)
        return self.head(self.third(y).tanh().mean((2, 3)))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.slow
def test_a_network(training: bool) -> None:
    """Values, gradients, statistics. Only where somebody fuses."""
    model = Residual().train(training)
    comparison = Comparison(1e-4, 1e-5, gradients=True, gradient_rtol=1e-3, gradient_atol=1e-5)
    compiled = []

    def compile(module: Any) -> Any:
        compiled.append(thunder.jit(module, executors=[Pointwise()]))
        return compiled[-1]

    assert_same_behaviour(model, lambda: Arguments(torch.randn(2, 3, 6, 6)), compile, comparison=comparison)
    assert formats(thunder.last_traces(compiled[0])[-1]) == [True] * 3
    alone = thunder.jit(model, executors=[])
    alone(torch.randn(2, 3, 6, 6))
    assert formats(thunder.last_traces(alone)[-1]) == [False] * 3


class WritesInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 3, 3, padding=1) for _ in range(8)])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        y = F.relu_(self.layers[0](x))
        y[:, 1] = 1
        row = y[:, :, 0]
        for layer in self.layers[1:]:
            y = layer(y).relu_().add_(y)
        x.add_(y)
        row.add_(y[:, :, 0])
        return row, y


@pytest.mark.parametrize("model", [Residual(), WritesInput()], ids=["residual", "writes"])
def test_inference(model: nn.Module) -> None:
    """Values that the program writes in place move, too."""
    compiled = []

    def compile(module: Any) -> Any:
        compiled.append(thunder.jit(module, executors=[Pointwise()]))
        return compiled[-1]

    with torch.no_grad():
        comparison = Comparison(1e-4, 1e-5)
        assert_same_behaviour(model.eval(), lambda: Arguments(torch.randn(2, 3, 6, 6)), compile, comparison=comparison)
    assert set(formats(thunder.last_traces(compiled[0])[-1])) == {True}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: images on it have half precision")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_training_on_a_gpu(dtype: torch.dtype) -> None:
    """Images and weights are moved once, and gradients have the strides of parameters."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), *(nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(4))]
    model = nn.Sequential(*[step for layer in layers for step in (layer, nn.BatchNorm2d(16), nn.ReLU(inplace=True))])
    model = model.cuda()
    twin = copy.deepcopy(model)
    compiled = thunder.jit(model, executors=["inductor"])
    x = torch.randn(4, 3, 16, 16, device="cuda")
    runs = []
    for function, owner in ((compiled, model), (twin, twin)):
        with torch.autocast("cuda", dtype):
            y = function(x)
        y.float().mean((2, 3)).square().sum().backward()
        runs.append([y, *[parameter.grad for parameter in owner.parameters()], *owner.buffers()])
    for found, expected in zip(*runs, strict=True):
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)
    moved_ones = formats(thunder.last_traces(compiled)[-1])
    assert moved_ones
    assert all(moved_ones)
