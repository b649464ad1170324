"""Writes of one position, fused with what computes the values: as in eager, and without copying the rest."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.ir.symbol import Tag
from thunder_core.passes.admission import region_call
from thunder_fusion import compiled_regions
from thunder_plugin_inductor import compilers

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)


class Decoder(nn.Module):
    """A layer of attention that keeps keys and values of up to two sequences."""

    def __init__(self, width: int = 16, length: int = 8) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.register_buffer("keys", torch.zeros(2, 2, length, width // 2))
        self.register_buffer("values", torch.zeros(2, 2, length, width // 2))
        self.register_buffer("angles", torch.rand(length, width // 2))
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        count, tokens, width = x.shape
        parts = self.qkv(x).view(count, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind()
        cos, sin = self.angles[position].cos(), self.angles[position].sin()
        q, k = (part * cos + part.flip(-1) * sin for part in (q, k))
        keys = self.keys[:count].index_copy_(-2, position, k)
        values = self.values[:count].index_copy_(-2, position, v)
        found = F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask[position])
        return found.transpose(1, 2).reshape(count, tokens, width)


def versions(module: nn.Module) -> list[int]:
    return [buffer._version for buffer in module.buffers()]


def writing(compiled: Any) -> list[Any]:
    """The executed ops that write, also those of a program that may be captured as a CUDA graph."""
    ops = thunder.last_traces(compiled)[-1].symbols
    executed = [line for op in ops for line in (op.parts if Tag.RUNS_PARTS in op.symbol.tags else (op,))]
    return [line for line in executed if line.effects.mutates]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_decoding_as_in_eager(device: str, mode: Any) -> None:
    torch.manual_seed(0)
    layer = Decoder().to(device).requires_grad_(False)
    reference = copy.deepcopy(layer)
    compiled = thunder.jit(layer, executors=["inductor"])
    start = versions(layer)
    with mode():
        for index in (0, 1, 5, 1):  # the second time at 1, the cache holds something else there
            position, x = torch.tensor([index], device=device), torch.randn(1, 1, 16, device=device)
            torch.testing.assert_close(compiled(x, position), reference(x, position))
            torch.testing.assert_close(dict(layer.named_buffers()), dict(reference.named_buffers()))
    assert versions(layer) == [before + 4 * written for before, written in zip(start, (1, 1, 0, 0), strict=True)]
    (region,) = writing(compiled)  # both caches by one call
    assert region.symbol.executor == "inductor"
    assert len(region.effects.mutates) == 2
    source = json.loads(region_call(region).artifact())["source"]
    made = [line for line in source.splitlines() if "= empty_strided" in line]
    assert made
    assert not [line for line in made if "8, 8)" in line], "a cache is copied"


@pytest.mark.slow
def test_several_positions_are_left_to_others() -> None:
    """Where some are equal, the last value stays; nothing orders the stores of a kernel."""

    def program(cache: torch.Tensor, positions: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return cache.index_copy_(0, positions, x * 2 + 1).sum(0)

    compiled = thunder.jit(program, executors=["inductor"])
    ours, theirs = torch.zeros(8, 4), torch.zeros(8, 4)
    positions, x = torch.tensor([2, 5, 2]), torch.randn(3, 4)
    torch.testing.assert_close(compiled(ours, positions, x), program(theirs, positions, x))
    torch.testing.assert_close(ours, theirs)
    said = {reason for line in thunder.explain(compiled).decisions for _, reason in line.declined}
    assert "it writes at several indices, which may be equal" in said


def overlapping(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    cache[:2].index_copy_(1, at, x[:2] * 2)
    cache[1:].index_copy_(1, at, x[1:] + 1)
    return cache.sum(0)


def read_between(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    first = cache * 2
    cache.index_copy_(1, at, x * 2)
    second = cache * 3
    cache.index_put_((at - at, at), x[0] * 5)
    return first, second, cache


@pytest.mark.parametrize("program", [overlapping, read_between])
@pytest.mark.slow
def test_order_of_reads_and_writes(program: Any) -> None:
    compiled = thunder.jit(program, executors=["inductor"])
    ours, theirs = torch.zeros(3, 8, 4), torch.zeros(3, 8, 4)
    for index in (0, 7):
        at, x = torch.tensor([index]), torch.randn(3, 1, 4)
        torch.testing.assert_close(compiled(ours, at, x), program(theirs, at, x))
        torch.testing.assert_close(ours, theirs)
    assert [line.symbol.executor for line in writing(compiled)] == ["inductor", "inductor"]


@pytest.mark.slow
def test_artifacts_write_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    for read in (0, 1):
        compiled_regions._cache.clear()
        compiled = thunder.jit(lambda cache, at, x: cache.index_copy_(1, at, x.exp() + 1), executors=["inductor"])
        cache, at, x = torch.zeros(3, 8, 4), torch.tensor([2]), torch.zeros(3, 1, 4)
        assert compiled(cache, at, x) is cache
        assert cache[:, 2].eq(2).all()
        assert cache.sum() == 24
        assert cache._version == 1
        assert thunder.explain(compiled).entries[0].regions.read == read


@pytest.mark.parametrize("position", [-1, 8])
def test_positions_that_are_not_there(position: int) -> None:
    compiled = thunder.jit(lambda cache, at, x: cache.index_copy_(1, at, x.exp() + 1), executors=["inductor"])
    cache = torch.zeros(3, 8, 4)
    with pytest.raises(
        IndexError, match=rf"index_copy_\(\): index {position} is out of bounds for dimension 1 with size 8"
    ):
        compiled(cache, torch.tensor([position]), torch.zeros(3, 1, 4))
    assert not cache.any()
    assert [line.symbol.executor for line in writing(compiled)] == ["inductor"]


def test_an_inference_tensor_is_not_written_outside_of_inference_mode() -> None:
    compiled = thunder.jit(lambda cache, at, x: cache.index_copy_(1, at, x.exp() + 1), executors=["inductor"])
    with torch.inference_mode():
        cache = torch.zeros(3, 8, 4)
    with pytest.raises(RuntimeError, match="inference tensor"):
        compiled(cache, torch.tensor([2]), torch.zeros(3, 1, 4))
    assert not cache.any()


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "mask": lambda y, at: y.__setitem__(y > 1, 0),
    "indices": lambda y, at: y.__setitem__(at, 3.0),
    "slice": lambda y, at: y.__setitem__(slice(1, 3), 7),
    "index_copy_": lambda y, at: y.index_copy_(0, at, y[:2] * 2),
    "index_put_": lambda y, at: y.index_put_((at,), y[:2] * 2, accumulate=True),
    "scatter_": lambda y, at: y.scatter_(0, at, 9.0),
    "zero_": lambda y, at: y[1:].zero_(),
    "data": lambda y, at: y.data.__setitem__(at, 3.0),
}
COPIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clone": lambda x: x.clone(),
    "clone of a value": lambda x: x.sin().clone(),
    "to": lambda x: x.to(torch.float32, copy=True),
    "copy_": lambda x: torch.empty_like(x).copy_(x),
    "clone of a view": lambda x: x.view(2, 2).clone().view(-1),
    "detached": lambda x: x.detach().clone(),
}


@pytest.mark.battery
@pytest.mark.parametrize("grad", [False, True], ids=["no gradients", "gradients"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_a_copy_leaves_what_was_copied(write: str, grad: bool) -> None:
    """For each way to copy, in one program: Inductor leaves copies out where it thinks that nobody writes them."""
    at = torch.tensor([0, 2])

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for copied in COPIES.values():
            y = copied(x)
            WRITES[write](y, at)
            results.append(x * x + y)
        return results

    x = torch.arange(4.0).requires_grad_(grad)
    compiled = thunder.jit(program, executors=["inductor"])
    expected, actual = program(x), compiled(x)
    assert dict(zip(COPIES, actual, strict=True)).keys() == COPIES.keys()
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(x.detach(), torch.arange(4.0))
    if grad:
        total = [sum(result.sum() for result in results) for results in (actual, expected)]
        torch.testing.assert_close(*[torch.autograd.grad(each, x) for each in total])
