"""Lines that write a part of some memory in place stay out of regions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder_testing.pointwise import Pointwise


class Everything(Pointwise):
    """Fuses indexing, too."""

    def can_fuse(self, bound: Any) -> bool | str:
        return True


def at_index(cache: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(0, index, x * 2)
    return cache.sum(0) + x.exp()


def at_slice(cache: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cache[1:3] = x * 2
    return cache.sum(0) + x.exp()


def through_a_view(cache: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cache[1:3].copy_(x * 2)
    return cache.sum(0) + x.exp()


def whole(cache: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cache.mul_(2)
    return cache.sum(0) + x.exp()


@pytest.mark.parametrize("program", [at_index, at_slice, through_a_view, whole])
def test_caches_are_written_in_place(program: Any) -> None:
    caches = [torch.ones(8, 4), torch.ones(8, 4)]
    compiled = thunder.jit(program, executors=[Everything()])
    with torch.no_grad():
        for _ in range(3):
            index, x = torch.tensor([1, 4]), torch.randn(2, 4)
            found, expected = (call(cache, index, x) for call, cache in zip((compiled, program), caches, strict=True))
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(*caches, rtol=0, atol=0)
    if program is not whole:  # a part is written, the rest is not copied
        assert not thunder.last_epilogue_traces(compiled)
        assert any(line.effects.mutates for line in thunder.last_traces(compiled)[-1].symbols)
    assert any("region" in line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols)
