"""What is alive while backward runs, and after."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import thunder
from tests.runtime.young_heap import young_heap
from tests.training.steps import leaf

LAYERS = 12


class _Probe(torch.autograd.Function):
    """The identity; its backward counts the unpacked tensors that are alive."""

    alive: list[int] = []  # noqa: RUF012 - shared on purpose
    unpacked: list[Any] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        _Probe.alive.append(sum(reference() is not None for reference in _Probe.unpacked))
        return gradient


def program(x: torch.Tensor) -> torch.Tensor:
    for _ in range(LAYERS):
        x = _Probe.apply(x.sin())
    return x.sum()


def unpack(copy: torch.Tensor) -> torch.Tensor:
    tensor = copy.clone()
    _Probe.unpacked.append(weakref.ref(tensor))
    return tensor


@pytest.mark.parametrize("retain_graph", [False, True])
def test_saved_values_are_freed_as_backward_consumes_them(retain_graph: bool) -> None:
    compiled = thunder.jit(program)
    compiled(leaf(5)).backward()  # compiles
    with saved_tensors_hooks(lambda tensor: tensor.detach().clone(), unpack):
        loss = compiled(leaf(5))
    _Probe.alive.clear()
    _Probe.unpacked.clear()
    loss.backward(retain_graph=retain_graph)
    assert len(_Probe.unpacked) >= LAYERS
    assert _Probe.alive == sorted(_Probe.alive, reverse=True)
    assert _Probe.alive[0] - _Probe.alive[-1] >= LAYERS - 1
    assert not any(reference() for reference in _Probe.unpacked)


@young_heap()
def test_nothing_outlives_backward() -> None:
    """Also while the output is held: eager's graph holds no saved tensors after backward."""
    compiled = thunder.jit(lambda x: (x.sin().exp() * x).sum())
    kept: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(tensor))
        return tensor

    compiled(leaf(4)).backward()
    x = leaf(4)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = compiled(x)
    loss.backward()
    gc.collect()
    assert kept
    assert all(reference() is None or reference() is x for reference in kept)


def test_a_forward_without_backward_frees_what_it_saved() -> None:
    compiled = thunder.jit(lambda x: (x.sin().exp() * x).sum())
    kept: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(tensor))
        return tensor

    compiled(leaf(4))
    x = leaf(4)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = compiled(x)
    del loss
    assert kept
    assert all(reference() is None or reference() is x for reference in kept)


class _Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        parts = [nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)]
        self.blocks = nn.ModuleList(parts)
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.use_reentrant)
        return x.square().sum()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_regions_keep_what_they_are_given(use_reentrant: bool) -> None:
    """One activation for each region, and the last one; none of those inside."""
    model = _Checkpointed(use_reentrant)
    compiled = thunder.jit(model)
    x = leaf(8, 16)
    parameters = {parameter.data_ptr() for parameter in (*model.parameters(), x)}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = compiled(x)
    assert sum(kept.values()) <= 4 * x.numel() * x.element_size()
    loss.backward()
