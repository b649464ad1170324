"""Cross entropy of classes: short rows, several to a program, and long ones block by block."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import DEVICE, assert_as_accurate_as_eager, table

import thunder

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OPTIONS = {
    "mean": {},
    "sum smoothed": {"reduction": "sum", "label_smoothing": 0.1},
    "none": {"reduction": "none"},
    "mean smoothed, ignoring a class": {"label_smoothing": 0.3, "ignore_index": 2},
}


def targets(rows: int, classes: int) -> torch.Tensor:
    """Every third one is ignored."""
    target = torch.randint(0, classes, (rows,), device=DEVICE)
    target[::3] = -100
    return target


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.slow
def test_accuracy(dtype: torch.dtype, options: dict[str, Any]) -> None:
    """Of dtypes, options and weights all pairs, and not all triples."""
    weighted = (DTYPES.index(dtype) + list(OPTIONS.values()).index(options)) % 2 == 1
    for rows, classes in ((7, 37), (3, 5000)):
        target = targets(rows, classes)
        if "ignore_index" in options:
            target = target.where(target >= 0, 2)
        weight = torch.rand(classes, device=DEVICE).to(dtype) if weighted else None

        def loss(x: torch.Tensor, weight: Any = weight, target: torch.Tensor = target) -> torch.Tensor:
            return F.cross_entropy(x, target, None if weight is None else weight.to(x.dtype), **options)

        x = (torch.randn(rows, classes) * 3).to(DEVICE, dtype)
        assert_as_accurate_as_eager(loss, x, name="cross_entropy")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.slow
def test_logits_are_not_converted_before(dtype: torch.dtype, options: dict[str, Any]) -> None:
    target, weight = targets(6, 37), torch.rand(37, device=DEVICE)
    if "ignore_index" in options:
        target = target.where(target >= 0, 2)

    def loss(x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return F.cross_entropy(wide.view(-1, 37), target, weight.to(wide.dtype), **options)

    wide = torch.randn(2, 3, 50, device=DEVICE).to(dtype)
    for x in (wide[..., :37].contiguous(), wide[..., 8:45]):
        compiled = assert_as_accurate_as_eager(loss, x, name="upcast_cross_entropy")
        assert "f32[2, 3, 37]" not in str(thunder.last_traces(compiled)[-1])


def test_logits_of_float32_that_others_read_are_made() -> None:
    def program(x: torch.Tensor) -> Any:
        wide = x.float()
        return F.cross_entropy(wide, torch.tensor([1, 2], device=DEVICE)), wide

    compiled = thunder.jit(program, executors=["triton"])
    x = torch.randn(2, 5, device=DEVICE).bfloat16()
    torch.testing.assert_close(compiled(x), program(x))
    assert "has other users" in table(compiled)
    assert "torch.nn.functional.cross_entropy  " in table(compiled)


def results(program: Any, x: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    leaf = x.detach().requires_grad_()
    loss = program(leaf, target)
    return [loss.detach(), *torch.autograd.grad(loss.sum(), leaf)]


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_rows_without_a_loss(reduction: str) -> None:
    def program(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target, reduction=reduction, label_smoothing=0.1)

    compiled = thunder.jit(program, executors=["triton"])
    x = torch.randn(4, 10, device=DEVICE)
    ignored = torch.full((4,), -100, device=DEVICE)
    extreme = x.clone()
    extreme[0] = -torch.inf
    extreme[1, 3] = torch.inf
    extreme[2, :7] = -torch.inf
    for logits, target in ((x, ignored), (extreme, torch.full((4,), 8, device=DEVICE))):
        torch.testing.assert_close(
            results(compiled, logits, target), results(program, logits, target), equal_nan=True
        )  # fmt: skip
    assert "triton" in table(compiled)


def test_memory_of_rows_is_read_where_it_is() -> None:
    target = targets(6, 9)
    cotangent = torch.randn(6, 2, device=DEVICE)[:, 0]

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target, reduction="none")

    for x in (torch.randn(6, 16, device=DEVICE)[:, 2:11], torch.randn(12, 9, device=DEVICE)[::2]):
        compiled = thunder.jit(program, executors=["triton"])
        x.requires_grad_()
        mine, eager = ((loss := each(x), torch.autograd.grad(loss, x, cotangent)) for each in (compiled, program))
        torch.testing.assert_close(mine, eager)
        assert "triton" in table(compiled)


@pytest.mark.skipif(DEVICE == "cuda", reason="an assertion on a GPU ends the process's use of it")
@pytest.mark.parametrize("wrong", [-1, 5])
def test_targets_that_are_no_classes(wrong: int) -> None:
    compiled = thunder.jit(F.cross_entropy, executors=["triton"])
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        compiled(torch.randn(2, 5), torch.tensor([0, wrong]))


def test_what_is_declined_says_why() -> None:
    x, target = torch.randn(4, 5, device=DEVICE), torch.tensor([0, 1, 2, 3], device=DEVICE)
    calls = {
        "targets are probabilities": (x, x.softmax(-1)),
        "in two dimensions": (x[..., None], target[:, None]),
        "not adjacent": (torch.randn(5, 4, device=DEVICE).t(), target),
        "there are no elements": (x[:0], target[:0]),
        "float64": (x.double(), target),
        "target is not contiguous": (x, torch.stack((target, target), 1)[:, 0]),
    }
    for reason, arguments in calls.items():
        compiled = thunder.jit(F.cross_entropy, executors=["triton"])
        torch.testing.assert_close(compiled(*arguments), F.cross_entropy(*arguments), equal_nan=True)
        assert reason in table(compiled), (reason, table(compiled))
