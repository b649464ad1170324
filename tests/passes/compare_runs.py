"""Compare what a program and its functional form do to equal inputs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch

from thunder_testing.seeding import seed_generators


def observe(run: Callable[[list[Any]], tuple[Any, ...]], inputs: list[torch.Tensor]) -> dict[str, Any]:
    """Everything that a caller can see: values, strides, identity, aliasing, gradients."""
    seed_generators(7)
    results = run(inputs)
    tensors = [*inputs, *results]
    seen = {
        "values": [t.detach().clone() for t in tensors],
        "strides": [t.stride() for t in tensors],
        "requires_grad": [t.requires_grad for t in tensors],
        "leaf": [t.is_leaf for t in tensors],
        "identity": [a is b for a, b in combinations(tensors, 2)],
        "aliasing": [_alias(a, b) for a, b in combinations(tensors, 2)],
        "random": torch.rand(1),
    }
    seen["gradients"] = _gradients(tensors, inputs)
    return seen


def assert_same(expected: dict[str, Any], actual: dict[str, Any], hint: Any = "") -> None:
    for name in ("identity", "aliasing", "strides", "requires_grad", "leaf"):
        assert expected[name] == actual[name], f"{name}: {expected[name]} {actual[name]} {hint}"
    for a, b in zip(expected["values"], actual["values"], strict=True):
        torch.testing.assert_close(b, a, equal_nan=True, rtol=1e-6, atol=1e-6, msg=lambda m: f"{m} {hint}")
    assert torch.equal(expected["random"], actual["random"]), hint
    if expected["gradients"] is None:
        return  # eager itself refuses to differentiate
    assert actual["gradients"] is not None, f"gradients {hint}"
    for a, b in zip(expected["gradients"], actual["gradients"], strict=True):
        assert (a is None) == (b is None), f"gradients {expected['gradients']} {actual['gradients']} {hint}"
        if a is not None:
            torch.testing.assert_close(b, a, equal_nan=True, rtol=1e-5, atol=1e-5, msg=lambda m: f"gradient {m} {hint}")


def _alias(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """Distance of two tensors of one memory; None for different memories."""
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return None
    return a.storage_offset() * a.element_size() - b.storage_offset() * b.element_size()


def _gradients(tensors: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
    leaves = [t for t in inputs if t.is_leaf and t.requires_grad]
    loss: Any = 0.0
    for index, tensor in enumerate(tensors):
        if tensor.requires_grad:
            weight = torch.linspace(0.5, 1.5, max(tensor.numel(), 1))[: tensor.numel()].reshape(tensor.shape)
            loss = loss + (tensor * weight).sum() * (index + 1)
    if not isinstance(loss, torch.Tensor) or not leaves:
        return [None for _ in leaves]
    try:
        return list(torch.autograd.grad(loss, leaves, allow_unused=True))
    except RuntimeError:
        return None
