"""Training under autocast: operators of each class, regions, cached casts, composite functions, custom functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from torch.utils.checkpoint import checkpoint

import thunder
from tests.hardware import runs_lstm
from tests.subjects import SUBJECT, eager
from tests.training import steps
from tests.training.autocast_programs import PROGRAMS
from tests.training.steps import LOW_PRECISION, assert_same, assert_same_training, detached, leaf
from thunder_testing import Comparison

DTYPES = [torch.bfloat16, torch.float16]
check = functools.partial(steps.check, comparison=Comparison(gradients=True, gradient_rtol=2e-2, gradient_atol=2e-2))
"""Forward bit for bit; gradients with sums in another order in low precision."""

NAMES = [(kind, name) for kind, programs in PROGRAMS.items() for name in programs]
OF_EACH_KIND = [("lower", "sdpa"), ("lower", "bilinear"), ("float32", "cross_entropy"), ("float32", "bce"),
                ("promote", "cat"), ("promote", "in place")]  # fmt: skip
given_in_dtypes = pytest.mark.parametrize(
    ("dtype", "given"),
    [(torch.bfloat16, "float32"), (torch.bfloat16, "mixed"), (torch.bfloat16, "low"), (torch.float16, "mixed")],
    ids=["bfloat16-float32", "bfloat16-mixed", "bfloat16-low", "float16-mixed"],
)


@given_in_dtypes
@pytest.mark.parametrize(("kind", "name"), OF_EACH_KIND)
@pytest.mark.battery
def test_an_operator_of_each_kind(kind: str, name: str, dtype: torch.dtype, given: str) -> None:
    check_operator(kind, name, dtype, given)


@given_in_dtypes
@pytest.mark.parametrize(("kind", "name"), [case for case in NAMES if case not in OF_EACH_KIND])
@pytest.mark.battery
def test_operator(kind: str, name: str, dtype: torch.dtype, given: str) -> None:
    check_operator(kind, name, dtype, given)


def check_operator(kind: str, name: str, dtype: torch.dtype, given: str) -> None:
    """Dtypes of outputs and gradients are eager's, whatever the inputs are, or the error is."""
    program = PROGRAMS[kind][name]
    first, second = (torch.float32 if given != "low" else dtype, torch.float32 if given == "float32" else dtype)

    def inside(x: torch.Tensor, y: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=dtype):
            result = program(x, y)
        return result

    def make_arguments() -> tuple[torch.Tensor, ...]:
        return leaf(4, 4, dtype=first), leaf(4, 4, dtype=second)

    check(inside, make_arguments, cache_hits=None)
    with torch.autocast("cpu", dtype=dtype):
        check(program, make_arguments, cache_hits=None)


def nested(x: torch.Tensor) -> Any:
    x = x * 0.3  # the cache of casts does not look at the dtype, in eager neither: a leaf would be the wrong one
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x
        with torch.autocast("cpu", enabled=False):
            b = x @ x + a.float() @ x
            with torch.autocast("cpu", dtype=torch.float16):
                c = a @ b
        with torch.autocast("cpu", dtype=torch.float16):
            d = x @ c
        e = d @ x
    return a, b, c, d, e, x @ x, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated(x: torch.Tensor) -> Any:
    return x @ x, F.softmax(x @ x, -1), F.layer_norm(x @ x, (4,))


def without_cache(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        return x @ x, torch.is_autocast_cache_enabled()


def by_condition(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.shape[0] > 2):
        y = x @ x
    return y.to(x.dtype) if y.dtype != x.dtype else y


def without_gradients(x: torch.Tensor) -> Any:
    """The cast of a leaf made under no_grad is not taken from the cache when gradients are needed."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            a = x @ x
        return a, x @ x


def of_views(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        y[0] = x[0]
        return y, y.t() @ x[1:].t().t().mT


def following(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x.sin() @ x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = x @ a + a @ x
        with torch.autocast("cpu", enabled=False):
            a = a.float().cos()
        b = b @ x
    c = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return a, b, c @ x


def following_in_checkpoints(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x.sin()
    a = checkpoint(following, x, use_reentrant=False)[1] @ a
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return a @ x


REGIONS = [nested, decorated, without_cache, by_condition, without_gradients, of_views]


@pytest.mark.parametrize("around", [None, torch.bfloat16, torch.float16, False], ids=str)
@pytest.mark.parametrize("program", REGIONS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_regions(program: Callable[..., Any], around: Any) -> None:
    if around is None:
        check(program, lambda: (leaf(4, 4),))
    else:
        with torch.autocast("cpu", dtype=around or torch.bfloat16, enabled=bool(around)):
            check(program, lambda: (leaf(4, 4),))


@pytest.mark.parametrize("program", [following, following_in_checkpoints], ids=lambda program: program.__name__)
def test_each_region_converts_a_parameter_anew(program: Callable[..., Any]) -> None:
    """The gradients of uses in one region are summed in the lower precision, those of two regions in float32."""
    compiled = thunder.jit(program)
    for seed in range(10):
        gradients = []
        for function in (program, compiled):
            x = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
            results = function(x)
            sum(result.float().sum() for result in (results if isinstance(results, tuple) else [results])).backward()
            gradients.append(x.grad)
        assert torch.equal(*gradients)


class Scaled(torch.autograd.Function):
    """Its backward runs under the autocast state of its forward."""

    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, y = ctx.saved_tensors
        return 10 * (gradient @ y.t()), 10 * (x.t() @ gradient)


class InFloat32(Scaled):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return x @ y


@pytest.mark.parametrize("function", [Scaled, InFloat32])
@pytest.mark.parametrize("where", ["inside", "around", "outside"])
def test_custom_forward_and_backward(function: type[Scaled], where: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=where == "inside" or torch.is_autocast_enabled("cpu")):
            return function.apply(x @ y, y), function.apply(x, y)

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=where == "around"):
        check(program, lambda: (leaf(4, 4), leaf(4, 4)))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), lambda: (leaf(5, 4),)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), lambda: (leaf(2, 3, 6, 6),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), lambda: (leaf(2, 5, 4),)),
    "attention": (lambda: nn.MultiheadAttention(4, 2, batch_first=True), lambda: (leaf(2, 5, 4),) * 3),
    "lstm": (lambda: nn.LSTM(4, 3, batch_first=True), lambda: (leaf(2, 5, 4),)),
    "gru": (lambda: nn.GRU(4, 3, batch_first=True), lambda: (leaf(2, 5, 4),)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)), lambda: (torch.randint(7, (2, 5)),)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.battery
def test_training_step(name: str, dtype: torch.dtype) -> None:
    """Forward under autocast, backward outside, three steps; then with autocast entered inside the program."""
    if name == "lstm" and not runs_lstm(dtype):
        pytest.skip(f"oneDNN has no LSTM in {dtype} for this processor")
    make, inputs = MODELS[name]
    around = torch.autocast("cpu", dtype=dtype)

    def scenario(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        seen = []
        for _ in range(3):
            arguments = inputs()
            with around:
                outputs = model(*arguments)
            optimizer.zero_grad()
            steps.loss_of(outputs).backward()
            optimizer.step()
            seen.append(detached(outputs))
        return seen, [p.grad.dtype for p in model.parameters()]

    assert_same(make, scenario, comparison=LOW_PRECISION)
    assert_same_training(lambda: Inside(make(), dtype), inputs, comparison=LOW_PRECISION)


class Inside(nn.Module):
    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(self, *args: Any) -> Any:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.model(*args)


def test_autocast_around_the_loss_alone() -> None:
    def scenario(model: Any) -> Any:
        x, target = leaf(5, 4), torch.tensor([0, 1, 2, 0, 1])
        output = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(output @ output.t(), target)
        loss.backward()
        return x, loss.detach()

    assert_same(MODELS["mlp"][0], scenario, comparison=LOW_PRECISION)


@pytest.mark.slow
def test_modes_from_call_to_call() -> None:
    """float32, bfloat16, half, with and without gradients: each call as eager's, none takes another's program."""

    def scenario(model: Any) -> Any:
        seen = []
        for dtype in (None, torch.bfloat16, None, torch.float16, torch.bfloat16):
            for grad in (True, False):
                with (
                    torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None),
                    torch.set_grad_enabled(grad),
                ):
                    seen.append(model(torch.randn(5, 4)))
        return [(output.dtype, output.requires_grad, detached(output)) for output in seen]

    assert_same(MODELS["mlp"][0], scenario)


class Shared(nn.Module):
    """One weight, used three times."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.inside or torch.is_autocast_enabled("cpu")):
            return self.layer(self.layer(x)) + self.layer(x.cos())


def casts(model: Any) -> int:
    """Number of conversions in a forward and a backward pass."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not model.inside):
            output = model(torch.randn(5, 4))
        output.float().sum().backward()
    return sum(event.count for event in profile.key_averages() if event.key == "aten::_to_copy")


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
@pytest.mark.parametrize("inside", [True, False])
def test_a_weight_is_cast_once(inside: bool) -> None:
    model = Shared(inside)
    compiled = SUBJECT(model)
    expected = casts(model)
    for _ in range(3):
        actual = casts(compiled)
    assert actual <= expected
    if SUBJECT is not eager:
        source = str(thunder.last_traces(compiled)[-1]).splitlines()
        conversions = [line for line in source if "layer_weight" in line and "bfloat16" in line]
        assert len(conversions) <= 1, conversions


class _Attending(torch.nn.Module):
    def __init__(self, recurrent: torch.nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        y, _ = self.recurrent(x)
        return self.attention(y, y, y, need_weights=False)[0]


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.RNN])
@pytest.mark.slow
def test_recurrent_layers_of_one_step(kind):
    """PyTorch writes in place here, and takes lists of one tensor apart."""
    model = _Attending(kind(4, 4, num_layers=2, batch_first=True))
    x = torch.randn(1, 1, 4, requires_grad=True)
    found = []
    for run in (model, thunder.jit(model, executors=[])):
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        found.append(torch.autograd.grad(y.float().square().sum(), [x, *model.parameters()], allow_unused=True))
    assert [one is None for one in found[0]] == [one is None for one in found[1]]
    for expected, actual in zip(*found, strict=True):
        if expected is not None:
            torch.testing.assert_close(actual, expected, rtol=3e-2, atol=1e-3)
