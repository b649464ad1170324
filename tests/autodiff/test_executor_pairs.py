"""Derivatives that executors give: a forward with residuals, and a backward."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from tests.autodiff import kernels
from tests.autodiff.kernels import CALLS, PRODUCT, RMS_NORM, SILU, ForwardOnly, Kernels
from thunder_core.errors import ExecutorError, ExecutorWarning
from thunder_core.executors import DerivativePair, Executor
from thunder_core.executors.configured import ConfiguredExecutor

NORM = "torch.nn.functional.rms_norm"
SILU_NAME = "torch.nn.functional.silu"


@pytest.fixture(autouse=True)
def _counts() -> None:
    CALLS.clear()


def jit(program: Any, *executors: Executor, **options: Any) -> Any:
    """Compiled by these executors."""
    return thunder.jit(program, executors=executors, **options)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (4,), weight, 1e-6)


def inputs(*, frozen: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    return x, torch.randn(4, dtype=torch.float64, generator=generator, requires_grad=not frozen)


def gradients(program: Any, *arguments: torch.Tensor) -> list[torch.Tensor]:
    result = program(*arguments)
    wanted = [argument for argument in arguments if argument.requires_grad]
    return [result, *torch.autograd.grad(result.square().sum(), wanted)]


def joint_of(program: Any) -> str:
    return str(thunder.last_backward_traces(program)[0])


def test_gradients_and_traces() -> None:
    program = jit(norm, Kernels("numpy", {NORM: RMS_NORM}))
    torch.testing.assert_close(gradients(program, *inputs()), gradients(norm, *inputs()))
    assert CALLS == {"rms_norm_forward": 1, "rms_norm_backward": 1, "rms_norm_wanted": 2}
    forward, backward = str(thunder.last_traces(program)[-1]), str(thunder.last_backward_traces(program)[-1])
    call = "t0, (_, _, t0_1, _) = tests.autodiff.kernels.rms_norm_forward(x, (4,), weight, 1e-06)"
    assert call in forward
    assert "tests.autodiff.kernels.rms_norm_backward((x, weight, t0_1, 1), (t0_cotangent,), (True, True))" in backward
    assert NORM not in forward


def test_report() -> None:
    program = jit(norm, Kernels("numpy", {NORM: RMS_NORM}))
    gradients(program, *inputs())
    entry = thunder.explain(program).entries[0]
    assert entry.executors == {"numpy": 2}
    assert entry.training is not None
    assert entry.training.sources == {"numpy": 1}
    assert (entry.training.saved_values, entry.training.saved_bytes, entry.training.saved_inputs) == (1, 3 * 8, 2)


def test_pair_that_works_on_fake_tensors() -> None:
    program = jit(F.silu, Kernels("torch_kernels", {SILU_NAME: SILU}))
    x, _ = inputs()
    torch.testing.assert_close(gradients(program, x), gradients(F.silu, x))
    assert "silu_backward" in joint_of(program)


def test_declined_ops_fall_through() -> None:
    executor = Kernels("numpy", {NORM: RMS_NORM}, limit=1000)
    program = jit(norm, executor)
    torch.testing.assert_close(gradients(program, *inputs()), gradients(norm, *inputs()))
    assert not CALLS
    assert not executor.asked
    assert thunder.explain(program).entries[0].training.sources == {"a hand-written rule": 1}


def test_first_that_claims() -> None:
    """The first executor provides the pair or leaves the line to rules; later ones are not queried."""
    small = Kernels("large_only", {NORM: None}, limit=1000)
    second, third = Kernels("second", {NORM: RMS_NORM}), Kernels("third", {NORM: SILU})
    program = jit(norm, small, second, third)
    torch.testing.assert_close(gradients(program, *inputs()), gradients(norm, *inputs()))
    assert thunder.explain(program).entries[0].training.sources == {"second": 1}
    assert not small.asked
    assert not third.asked


@pytest.mark.parametrize("first", [ForwardOnly("first", SILU_NAME), Kernels("first", {SILU_NAME: None})], ids=repr)
def test_claimed_without_a_pair(first: Any) -> None:
    program = jit(F.silu, first, Kernels("second", {SILU_NAME: SILU}))
    x, _ = inputs()
    torch.testing.assert_close(gradients(program, x), gradients(F.silu, x))
    entry = thunder.explain(program).entries[0]
    assert entry.training.sources == {"PyTorch's autograd": 1}
    assert entry.executors["first"] == 1  # forward is still its own
    assert "second" not in entry.executors


def test_equal_layers_are_asked_for_once() -> None:
    executor = Kernels("numpy", {NORM: RMS_NORM})

    def layers(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = norm(x, weight)
        return x

    program = jit(layers, executor)
    torch.testing.assert_close(gradients(program, *inputs()), gradients(layers, *inputs()))
    assert executor.asked == {NORM: 1}
    assert CALLS["rms_norm_backward"] == 5


def test_double_backward() -> None:
    program = jit(norm, Kernels("numpy", {NORM: RMS_NORM}))

    def second(program: Any) -> Any:
        x, weight = inputs()
        (gradient,) = torch.autograd.grad(program(x, weight).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), (x, weight))

    torch.testing.assert_close(second(program), second(norm))


def test_frozen_weight() -> None:
    program = jit(norm, Kernels("numpy", {NORM: RMS_NORM}))
    arguments = inputs(frozen=True)
    torch.testing.assert_close(gradients(program, *arguments), gradients(norm, *arguments))
    assert CALLS["rms_norm_wanted"] == 1
    assert "(True, False)" in joint_of(program)


def test_gradient_of_one_input() -> None:
    """Gradients that one backward does not need are not computed."""
    program = jit(norm, Kernels("numpy", {NORM: RMS_NORM}))
    x, weight = inputs()
    (found,) = torch.autograd.grad(program(x, weight).sum(), weight)
    torch.testing.assert_close(found, torch.autograd.grad(norm(x, weight).sum(), weight)[0])
    assert CALLS["rms_norm_wanted"] == 1


def test_retained_graph() -> None:
    program = jit(norm, Kernels("numpy", {NORM: RMS_NORM}))
    x, weight = inputs()
    loss = program(x, weight).sum()
    first = torch.autograd.grad(loss, (x, weight), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, (x, weight)), first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_one_tensor_as_two_arguments() -> None:
    def square(x: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, x)

    program = jit(square, Kernels("products", {"torch.mul": PRODUCT}))
    x, _ = inputs()
    torch.testing.assert_close(gradients(program, x), gradients(square, x))
    assert "product_backward" in joint_of(program)


def test_local_functions() -> None:
    pair = DerivativePair(lambda x: kernels.silu_forward(x), lambda *given: kernels.silu_backward(*given))
    program = jit(F.silu, Kernels("local", {SILU_NAME: pair}))
    x, _ = inputs()
    torch.testing.assert_close(gradients(program, x), gradients(F.silu, x))
    assert thunder.explain(program).entries[0].executors["local"] == 2


def test_checkpoint_runs_a_pure_pair_again() -> None:
    def checkpointed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        def region(x: torch.Tensor) -> torch.Tensor:
            return norm(x, weight).exp().sin()

        result: torch.Tensor = torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False)
        return result

    for pure, calls in ((True, 2), (False, 1)):
        CALLS.clear()
        pair = dataclasses.replace(RMS_NORM, pure=pure)
        program = jit(checkpointed, Kernels("numpy", {NORM: pair}))
        torch.testing.assert_close(gradients(program, *inputs()), gradients(checkpointed, *inputs()))
        assert CALLS["rms_norm_forward"] == calls


def test_in_a_model_that_eager_differentiates() -> None:
    """Autograd cannot go through a kernel: no executor but the reference runs what it records."""

    def with_gradient(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = norm(x, weight)
        return y * torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    program = jit(with_gradient, Kernels("numpy", {NORM: RMS_NORM}))
    torch.testing.assert_close(gradients(program, *inputs()), gradients(with_gradient, *inputs()))
    assert "torch.autograd.grad" in thunder.explain(program).entries[0].as_recorded


def _raises(*args: Any) -> Any:
    raise ValueError("no kernel")


def _silu_half(x: torch.Tensor) -> Any:
    return F.silu(x).half(), (x,)


HALF = "returns float16[3, 4] on cpu for t0; expected is float64[3, 4] on cpu"


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (DerivativePair(_raises, kernels.silu_backward), "failed with ValueError: no kernel"),
        (DerivativePair(kernels.silu_forward, _raises), "failed with ValueError: no kernel"),
        (DerivativePair(kernels.silu_forward, kernels.silu_backward, _raises), "failed with ValueError: no kernel"),
        (DerivativePair(lambda x: x.numpy(), kernels.silu_backward), "Error"),
        (DerivativePair(_silu_half, kernels.silu_backward), f"its forward {HALF}"),
        (DerivativePair(kernels.silu_forward, kernels.silu_backward, _silu_half), f"its fake {HALF}"),
        (DerivativePair(lambda x: (x[:1] * 1, ()), kernels.silu_backward), "returns float64[1, 4] on cpu for t0"),
        (DerivativePair(lambda x: (x.mT.contiguous().mT, ()), kernels.silu_backward), "with strides (1, 3) for t0"),
        (DerivativePair(lambda x: ((x * 1, x * 2), ()), kernels.silu_backward), "returns 2 tensors as results, not 1"),
        (DerivativePair(lambda x: x * 1, kernels.silu_backward), "does not return a tuple of the results"),
        (DerivativePair(lambda x: (x, ()), kernels.silu_backward), "shares memory"),
        (DerivativePair(lambda x: (x * 1, [x]), kernels.silu_backward), "not a tuple"),
        (DerivativePair(lambda x: (x.mul_(2) * 1, ()), kernels.silu_backward), "writes to its arguments"),
    ],
    ids=[
        *("forward", "backward", "fake", "numpy", "dtype", "fake dtype", "shape", "strides", "count", "tuple", "alias"),
        *("residuals", "write"),
    ],
)
@pytest.mark.slow
def test_pairs_that_fail(pair: DerivativePair, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The op is differentiated without them after a warning in each compilation; an error where that is configured."""
    monkeypatch.delenv("THUNDER_STRICT", raising=False)
    executor = Kernels("broken", {SILU_NAME: pair})
    x, _ = inputs()
    for _ in range(2):
        program = jit(F.silu, executor)
        with pytest.warns(ExecutorWarning, match=f"broken declines {SILU_NAME}: its derivative pair failed") as warned:
            torch.testing.assert_close(gradients(program, x), gradients(F.silu, x))
        assert len(warned) == 1
    (derivative,) = thunder.explain(program).entries[0].training.derivatives
    assert derivative.source == "PyTorch's autograd"
    assert derivative.reason.startswith("the pair of broken failed")
    assert reason in derivative.reason
    cure = "DerivativePair(..., fake=...)" if pair.fake is None else "`fake` must"
    assert (cure if "failed with" in derivative.reason else "decline the call in the check") in derivative.reason
    with (
        pytest.warns(ExecutorWarning, match="declines"),
        pytest.raises(ExecutorError, match=f"broken declined {SILU_NAME}, because the pair of broken failed"),
    ):
        jit(F.silu, ConfiguredExecutor(executor, on_decline="error"))(x)
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(ExecutorError, match=f"broken: {SILU_NAME}: its derivative pair failed"):
        jit(F.silu, executor)(x)


def test_a_pair_for_an_op_that_returns_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not the fault of the pair, and no warning: the report has the reason, and ``on_decline`` applies."""
    monkeypatch.delenv("THUNDER_STRICT", raising=False)
    executor = Kernels("views", {"torch.t": SILU})
    x, _ = inputs()
    program = jit(lambda x: torch.t(x) * 2, executor)
    torch.testing.assert_close(gradients(program, x), gradients(lambda x: torch.t(x) * 2, x))
    assert "the pair of views cannot be used: " in thunder.explain(program).entries[0].training.derivatives[0].reason
    with pytest.raises(ExecutorError, match=r"views declined torch.t, because the pair of views cannot be used"):
        jit(lambda x: torch.t(x) * 2, ConfiguredExecutor(executor, on_decline="error"))(x)


EXPECTED = "expected is a tensor like the argument input, float64[3, 4] on cpu"


@pytest.mark.parametrize(
    ("backward", "problem"),
    [
        (lambda r, c, w: (), "returns a tuple of 0, not a tuple with an item for each of the 1 tensor"),
        (lambda r, c, w: (c[0], None), "returns a tuple of 2, not a tuple"),
        (lambda r, c, w: c[0], "returns a FakeTensor, not a tuple"),
        (lambda r, c, w: None, "returns a NoneType, not a tuple"),
        (lambda r, c, w: (c[0].sum(),), f"returns float64[] on cpu at index 0; {EXPECTED}"),
        (lambda r, c, w: (c[0].half(),), f"returns float16[3, 4] on cpu at index 0; {EXPECTED}"),
        (lambda r, c, w: (c[0].to("meta"),), f"returns float64[3, 4] on meta at index 0; {EXPECTED}"),
        (lambda r, c, w: (1.0,), f"returns a float at index 0; {EXPECTED}"),
        (lambda r, c, w: (None,), f"returns a NoneType at index 0; {EXPECTED}"),
    ],
    ids=["none", "more", "tensor", "nothing", "shape", "dtype", "device", "number", "missing"],
)
def test_wrong_gradients(backward: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are reported with the executor, the operation and what was expected; as an error if the option is set."""
    x, _ = inputs()

    broken = Kernels("broken", {SILU_NAME: DerivativePair(kernels.silu_forward, backward)})
    monkeypatch.delenv("THUNDER_STRICT", raising=False)
    with pytest.warns(ExecutorWarning, match=f"broken declines {SILU_NAME}: .*{re.escape(problem)}"):
        found = gradients(jit(F.silu, broken), x)
    torch.testing.assert_close(found, gradients(F.silu, x))
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(ExecutorError, match=f"broken: {SILU_NAME}: .*{re.escape(problem)}"):
        jit(F.silu, broken)(x)


def test_module_in_training() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(4, eps=1e-6)
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.silu(self.linear(self.norm(x)))

    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(3)])
    executors = Kernels("numpy", {NORM: RMS_NORM}), Kernels("torch_kernels", {SILU_NAME: SILU})
    compiled, x = jit(model, *executors, recompute="aggressive"), torch.randn(2, 4)
    found = []
    for program in (model, compiled):
        model.zero_grad()
        program(x).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(found[1], found[0])
    assert thunder.explain(compiled).entries[0].training.sources["numpy"] == 3
