"""Arguments and results of Apex's functions, and the calls that the executor does not claim."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fake_apex
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder
import thunder_plugin_composites as composites
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_apex import composite
from thunder_plugin_apex.conditions import LARGEST
from thunder_plugin_apex.executor import ApexExecutor
from thunder_plugin_apex.options import ApexOptions

KEEPING = ApexOptions(memory_efficient=True)


def compiled(function: Callable[..., Any], options: ApexOptions | None = None) -> Any:
    return thunder.jit(function, executors=[ApexExecutor(options, device="cpu")])


def outcome(function: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The result and the gradients of all floating-point tensors."""
    leaves = [each.detach().requires_grad_() if each.is_floating_point() else each for each in tensors]
    result = function(*leaves)
    torch.manual_seed(1)
    return result, list(torch.autograd.grad(result, leaves[: len(tensors)], torch.randn_like(result)))


def floating(function: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
    """`outcome` with the tensors that are not differentiated bound."""
    others = [each for each in tensors if not each.is_floating_point()]
    own = [each for each in tensors if each.is_floating_point()]
    return outcome(lambda *leaves: function(*leaves, *others), *own)


def reasons(program: Callable[..., Any], *args: Any) -> str:
    """Why Apex declined the calls of a program."""
    function = compiled(program)
    function(*args)
    assert fake_apex.calls == []
    decisions = thunder.explain(function).decisions
    return "; ".join(reason for each in decisions for executor, reason in each.declined if executor == "apex")


ROWS = torch.randn(5, 8)
WEIGHT, BIAS = torch.rand(8) + 0.5, torch.randn(8)
LABELS = torch.tensor([3, -100, 0, 7, 7])


@pytest.mark.parametrize("options", [ApexOptions(), KEEPING], ids=["input kept", "output kept"])
@pytest.mark.parametrize(
    ("program", "tensors", "functions"),
    [
        (
            lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-3),
            (ROWS, WEIGHT, BIAS),
            ["forward_affine", "backward_affine"],
        ),
        (lambda x: F.layer_norm(x, (5, 8)), (ROWS,), ["forward", "backward"]),
        (lambda x, w: F.rms_norm(x, (8,), w, 1e-3), (ROWS, WEIGHT), ["rms_forward_affine", "rms_backward_affine"]),
        (lambda x: F.rms_norm(x, (5, 8), eps=1e-3), (ROWS,), ["rms_forward", "rms_backward"]),
        (
            lambda x, w: composites.rms_norm(x, w, 1e-3, unit_offset=True),
            (ROWS, WEIGHT),
            ["rms_forward_affine", "rms_backward_affine"],
        ),
    ],
    ids=["layer_norm", "layer_norm plain", "rms_norm", "rms_norm plain", "composite with offset"],
)
def test_normalizations(
    options: ApexOptions, program: Callable[..., Tensor], tensors: tuple[Tensor, ...], functions: list[str]
) -> None:
    torch.testing.assert_close(outcome(compiled(program, options), *tensors), outcome(program, *tensors))
    assert fake_apex.calls == functions


def test_what_is_kept() -> None:
    """The argument, or the result, and one number a row."""
    program = lambda x, w: F.rms_norm(x * 2, (8,), w, 1e-3)  # noqa: E731
    for options, kept in ((ApexOptions(), "t0"), (KEEPING, "t1")):
        function = compiled(program, options)
        function(ROWS.clone().requires_grad_(), WEIGHT.clone().requires_grad_())
        backward = thunder.last_backward_traces(function)[-1].python()
        assert f"{kept}: " in backward
        assert ("t1: " if kept == "t0" else "t0: ") not in backward


def test_a_models_own_norm() -> None:
    """As LitGPT and Hugging Face write it: the pattern is found, and Apex runs it."""

    def hugging_face(x: Tensor, weight: Tensor) -> Tensor:
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return weight * (x.float() * torch.rsqrt(variance + 1e-6)).to(x.dtype)

    tensors = (ROWS.bfloat16(), WEIGHT.bfloat16())
    found, expected = outcome(compiled(hugging_face), *tensors), outcome(hugging_face, *tensors)
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=2e-2, atol=2e-2)  # eager sums products in bfloat16
    assert fake_apex.calls == ["rms_forward_affine", "rms_backward_affine"]


@pytest.mark.parametrize(
    ("input", "weight", "offset", "reason"),
    [
        (ROWS.bfloat16(), WEIGHT, False, "weight is torch.float32, and input torch.bfloat16"),
        (ROWS.bfloat16(), WEIGHT, True, "1 is added to the weight in float32, and input is torch.bfloat16"),
        (ROWS, WEIGHT.bfloat16(), True, "1 is added to the weight in float32, and weight is torch.bfloat16"),
        (ROWS, WEIGHT[None], False, "weight has the shape (1, 8), not (8,)"),
        (torch.tensor(1.0), WEIGHT, False, "input has no dimension"),
        (ROWS, WEIGHT, True, None),
    ],
)
def test_a_models_own_norm_is_declined(input: Tensor, weight: Tensor, offset: bool, reason: str | None) -> None:
    """A declined one may be found again as one of its parts, in float32."""
    proxies = [
        TensorProxy(name, tuple(each.shape), each.stride(), each.dtype, each.device, False, index)
        for index, (name, each) in enumerate({"input": input, "weight": weight}.items())
    ]
    assert composite.unfit_call("cpu", *proxies, 1e-6, unit_offset=offset) == reason


def test_a_weight_of_half_precision() -> None:
    """It is converted for an input in float32, and its gradient back."""
    program = lambda x, w: composites.rms_norm(x, w, 1e-3)  # noqa: E731
    tensors = (ROWS, WEIGHT.bfloat16())
    torch.testing.assert_close(outcome(compiled(program), *tensors), outcome(program, *tensors))
    assert fake_apex.calls == ["rms_forward_affine", "rms_backward_affine"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignore_index", [-100, 7, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.battery
def test_cross_entropy(dtype: torch.dtype, ignore_index: int, reduction: str, smoothing: float) -> None:
    labels = LABELS.clamp(min=0) if ignore_index >= 0 else LABELS

    def program(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(
            logits, labels, reduction=reduction, ignore_index=ignore_index, label_smoothing=smoothing
        )

    logits = 3 * ROWS.to(dtype)
    expected = floating(program, logits.double(), labels)
    result, gradients = floating(compiled(program), logits, labels)
    assert result.dtype is gradients[0].dtype is dtype
    torch.testing.assert_close((result, gradients), (expected[0].to(dtype), [expected[1][0].to(dtype)]))
    assert fake_apex.calls == ["xentropy_forward", "xentropy_backward"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_all_labels_ignored(reduction: str, smoothing: float) -> None:
    """The mean of nothing is NaN, and its gradient zero, as in eager PyTorch."""
    program = lambda logits, labels: F.cross_entropy(  # noqa: E731
        logits, labels, reduction=reduction, label_smoothing=smoothing
    )
    labels = torch.full((5,), -100)
    expected = floating(program, ROWS, labels)
    torch.testing.assert_close(floating(compiled(program), ROWS, labels), expected, equal_nan=True)


def test_masked_classes() -> None:
    """Logits of -inf, whose losses the kernel makes NaN."""
    logits = ROWS.masked_fill(torch.arange(8) == 5, -math.inf)
    program = lambda logits, labels: F.cross_entropy(logits, labels)  # noqa: E731
    torch.testing.assert_close(floating(compiled(program), logits, LABELS), floating(program, logits, LABELS))


NORM, LOSS = F.layer_norm, F.cross_entropy
LOGITS, TARGET = torch.randn(4, 8), torch.tensor([1, 2, 3, 0])


@pytest.mark.parametrize(
    ("program", "args", "reason"),
    [
        (lambda x, w: NORM(x, (8,), w), (ROWS, WEIGHT), "there is a weight only"),
        (lambda x, b: NORM(x, (8,), None, b), (ROWS, BIAS), "there is a bias only"),
        (lambda x: NORM(x, (8,)), (ROWS.double(),), "torch.float64 is not implemented"),
        (lambda x: NORM(x, (5,)), (ROWS.t(),), "input is not contiguous"),
        (lambda x: NORM(x, (8,)), (ROWS[:0],), "input is empty"),
        (lambda x, w: NORM(x, (8,), w, w), (ROWS.bfloat16(), WEIGHT), "weight is torch.float32, and input"),
        (lambda x, w: NORM(x, (8,), w, w), (ROWS, torch.randn(16)[::2]), "weight is not contiguous"),
        (lambda x, w: F.rms_norm(x, (8,), w), (ROWS, WEIGHT), "eps is None, not a plain number"),
        (lambda x, t, w: LOSS(x, t, w), (LOGITS, TARGET, WEIGHT), "class weights are not implemented"),
        (lambda x, t: LOSS(x, t), (LOGITS, LOGITS.softmax(1)), "target is torch.float32"),
        (lambda x, t: LOSS(x, t), (LOGITS[0], TARGET[0]), "input has 1 dimensions and target 0"),
        (lambda x, t: LOSS(x[..., None], t[:, None]), (LOGITS, TARGET), "input has 3 dimensions and target 2"),
        (lambda x, t: LOSS(x, t), (LOGITS.t().contiguous().t(), TARGET), "input is not contiguous"),
        (lambda x, t: LOSS(x, t), (LOGITS, TARGET.repeat_interleave(2)[::2]), "target is not contiguous"),
        (lambda x, t: LOSS(x, t), (LOGITS.double(), TARGET), "torch.float64 is not implemented"),
        (lambda x, t: LOSS(x, t, reduction="sum"), (LOGITS[:0], TARGET[:0]), "input is empty"),
    ],
)
def test_declined(program: Callable[..., Any], args: tuple[Any, ...], reason: str) -> None:
    assert reason in reasons(program, *args)


@pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated")
def test_declined_for_the_old_way_to_reduce() -> None:
    program = lambda x, t: LOSS(x, t, size_average=False)  # noqa: E731
    assert "size_average and reduce are given" in reasons(program, LOGITS, TARGET)


def test_declined_on_another_device() -> None:
    function = thunder.jit(lambda x: NORM(x, (8,)), executors=[ApexExecutor()])
    function(ROWS)
    (decline,) = thunder.explain(function).decisions[0].declined
    assert decline == ("apex", "it runs on cuda, and input is on cpu")


def test_declined_for_its_size() -> None:
    """On the meta device, where nothing is allocated."""
    function = thunder.jit(lambda x: NORM(x, (8,)), executors=[ApexExecutor(device="meta")])
    function(torch.empty(LARGEST // 8, 8, device="meta"))
    (decline,) = thunder.explain(function).decisions[0].declined
    assert decline == ("apex", f"input has {LARGEST} elements, and the kernels support up to {LARGEST}")
