"""Inference through graphs: shapes, caches, results that are kept, views, refusals, eviction."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from graphed_programs import Cached, Network, Pair, same, ungraphed
from recording import RecordingBackend

import thunder
from thunder.compiled.module_forward import compiled_of
from thunder_plugin_cudagraphs import CUDAGraphs, release_memory, statistics


def graphed(function: Any, executors: Any = None, **options: Any) -> Any:
    transforms = [CUDAGraphs(**{"copy_below": 0, "warmup": 1, **options})]
    return thunder.jit(function, executors=executors, transforms=transforms)


@torch.no_grad()
@pytest.mark.slow
def test_several_shapes(device: str) -> None:
    pair = Pair.of(Network(), device, copy_below=1 << 20)
    for turn in range(12):
        x = torch.randn(2, 3 + turn % 3, 16, device=device)
        same(pair.compiled(x), pair.eager(x))
    found = [one for one in statistics(pair.compiled) if one.phase == "inference"]
    assert [(one.graphs, one.replays) for one in found] == [(1, 2)] * 3
    sizes = [entry.sizes for entry in thunder.explain(pair.compiled).entries]
    assert sizes[0] is None
    assert "a CUDA graph has constant sizes" in sizes[1].reason


@torch.no_grad()
def test_results_that_are_kept(device: str) -> None:
    pair = Pair.of(Network(), device, patience=3)
    kept = []
    for _ in range(12):
        x = torch.randn(2, 4, 16, device=device)
        kept.append((pair.compiled(x), pair.eager(x)))
    for found, expected in kept:
        same(found, expected)


@torch.no_grad()
def test_small_results_are_copies(device: str) -> None:
    pair = Pair.of(Network(), device, copy_below=1 << 20)
    kept = []
    for _ in range(6):
        x = torch.randn(2, 4, 16, device=device)
        kept.append((pair.compiled(x), pair.eager(x)))
    for found, expected in kept:
        same(found, expected)
    assert ungraphed(pair.statistics("inference")) == {}


@torch.no_grad()
def test_cache(device: str) -> None:
    pair = Pair.of(Cached(), device)
    for turn in range(8):
        x, position = torch.randn(2, 1, 16, device=device), torch.tensor([turn], device=device)
        pair.each(lambda model, _, x=x, position=position: model(x, position).clone())
        pair.same_state()
    assert pair.statistics("inference").replays == 6


@torch.no_grad()
def test_cache_as_an_argument(device: str) -> None:
    """What is written stays in its place; another one means another graph."""

    def write(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache.add_(x)
        return cache * 2

    compiled = graphed(write, executors=[])  # fused, the new values would be copied outside of the graph
    caches = [torch.zeros(4, 4, device=device) for _ in range(2)]
    expected = [cache.clone() for cache in caches]
    for turn in range(8):
        x = torch.randn(4, 4, device=device)
        which = turn // 4
        before = caches[which]._version
        same(compiled(caches[which], x).clone(), write(expected[which], x))
        same(caches, expected)
        assert caches[which]._version > before
    (found,) = statistics(compiled)
    assert (found.graphs, found.replays) == (2, 7), found


@torch.no_grad()
def test_versions_count_the_writes_that_eager_counts(device: str) -> None:
    pair = Pair.of(torch.nn.BatchNorm1d(4), device)
    before = [[buffer._version for buffer in one.buffers()] for one in (pair.eager, pair.compiled)]
    for _ in range(6):
        x = torch.randn(3, 4, device=device)
        pair.each(lambda model, _, x=x: model(x).clone())
        pair.same_state()
    after = [[buffer._version for buffer in one.buffers()] for one in (pair.eager, pair.compiled)]
    counts = [[now > then for now, then in zip(*each, strict=True)] for each in zip(after, before, strict=True)]
    assert counts[0] == counts[1] == [False, False, True]
    assert pair.statistics("inference").replays > 0


@torch.no_grad()
def test_parameters_that_move(device: str) -> None:
    model = torch.nn.Linear(4, 4, device=device)
    compiled = graphed(model, max_captures=3)
    x = torch.randn(2, 4, device=device)
    kept = []
    for _ in range(6):
        for _ in range(2):
            same(compiled(x).clone(), torch.nn.functional.linear(x, model.weight, model.bias))
        kept.append(model.weight.data)
        model.weight.data = torch.randn(4, 4, device=device)
    (found,) = statistics(compiled)
    assert found.captures == 3
    assert found.refused is not None
    assert "captured 3 times" in found.refused


@torch.no_grad()
def test_inputs_of_all_layouts(device: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    whole = torch.randn(8, 6, device=device)
    for make in (
        lambda x: x.t(),
        lambda x: x[::2, 1:5],
        lambda x: x[:, :1].expand(8, 4),
        lambda x: x.flatten().as_strided((5, 4), (2, 1)),
        lambda x: x[0, 0],
        lambda x: x[:0],
    ):
        compiled = graphed(f)
        for _ in range(4):
            whole = torch.randn(8, 6, device=device)
            x = make(whole)
            found, expected = compiled(x), f(x)
            same(found, expected)
            assert found.stride() == expected.stride()


@torch.no_grad()
def test_results_that_are_views(device: str) -> None:
    """Of an input, of each other, and of a memory that is larger."""

    def f(x: torch.Tensor) -> Any:
        y = x * 2
        one, other = y.chunk(2)
        return x.t(), x[1:], one, other, y.t(), (x + 1)[:, 0], (x[:, :1] + 1).expand(4, 3)

    for copy_below in (0, 1 << 20):
        compiled = graphed(f, copy_below=copy_below)
        for _ in range(4):
            x = torch.randn(4, 4, device=device)
            found, expected = compiled(x), f(x)
            same(found, expected)
            assert [one.stride() for one in found] == [one.stride() for one in expected]
            found[0].fill_(3.0)
            assert bool((x == 3.0).all())
            found[2].fill_(5.0)
            assert bool((found[4].t()[:2] == 5.0).all())
            del found


@torch.no_grad()
def test_views_of_parameters(device: str) -> None:
    """They require grad as the parameter does, also where nothing is recorded; and are views of it."""
    layer = torch.nn.Linear(4, 4).to(device)
    x = torch.ones(2, 4, device=device)

    def f(layer: torch.nn.Linear, x: torch.Tensor) -> Any:
        return layer.weight.t(), layer.weight[1:], layer.weight.detach()[0], x[0], x + layer.weight.sum()

    compiled = graphed(f)
    for _ in range(4):
        found, expected = compiled(layer, x), f(layer, x)
        same(found, expected)
        for one, other in zip(found, expected, strict=True):
            assert (one.requires_grad, one.is_leaf) == (other.requires_grad, other.is_leaf)
            assert one._base is other._base or not other.requires_grad


def test_gradient_mode_and_inference_mode(device: str) -> None:
    pair = Pair.of(Network(), device)
    x = torch.randn(2, 4, 16, device=device)
    for mode in (torch.no_grad, torch.inference_mode):
        for _ in range(4):
            with mode():
                found = pair.compiled(x)
                assert found.is_inference() is (mode is torch.inference_mode)
                same(found.clone(), pair.eager(x))
                del found


def test_results_without_gradients_of_inputs_with(device: str) -> None:
    compiled = graphed(lambda x: x.detach().argmax(-1))
    for _ in range(4):
        x = torch.randn(3, 5, device=device, requires_grad=True)
        assert torch.equal(compiled(x), x.argmax(-1))


@torch.no_grad()
def test_kept_results_delay_no_other_program(device: str) -> None:
    """A result in a graph's memory, which the allocator does not know of, is kept: others are captured at once."""
    one, other = Pair.of(Network(), device), Pair.of(Network(width=16), device)
    x = torch.randn(2, 4, 16, device=device)
    kept = None
    for _ in range(5):
        del kept  # so that the last one is a replay's, and was not copied
        kept = one.compiled(x)
    expected = one.eager(x)
    for _ in range(6):
        same(other.compiled(x).clone(), other.eager(x))
    found = other.statistics("inference")
    assert (found.graphs, found.replays, ungraphed(found)) == (1, 4, {})
    same(kept, expected)
    for _ in range(20):  # those of the same memory go on elsewhere after a while
        same(one.compiled(x).clone(), one.eager(x))
    found = one.statistics("inference")
    assert sum(ungraphed(found).values()) <= 8
    same(kept, expected)


@torch.no_grad()
@pytest.mark.slow
def test_a_dropped_program_is_freed_at_once(device: str) -> None:
    """As in eager PyTorch: without the collector of reference cycles."""
    graphed(torch.nn.Linear(4, 4, device=device))(torch.ones(4, 4, device=device))  # what is imported meanwhile
    gc.collect()
    gc.disable()
    try:
        model = torch.nn.Linear(4, 4, device=device)
        compiled = graphed(model)
        for _ in range(3):
            compiled(torch.ones(4, 4, device=device))
        (program,) = [weakref.ref(note) for note in compiled_of(compiled).entries[0].program.notes]
        weight = weakref.ref(model.weight)
        del model, compiled
        assert program() is None
        assert weight() is None
    finally:
        gc.enable()


@torch.no_grad()
def test_eviction(device: str) -> None:
    pair = Pair.of(Network(), device, max_graphs=2, copy_below=1 << 20, max_captures=100)
    for turn in range(24):
        x = torch.randn(2, 3 + turn % 4, 16, device=device)
        same(pair.compiled(x), pair.eager(x))
        assert sum(one.graphs for one in statistics(pair.compiled)) <= 2


@torch.no_grad()
def test_evicted_results_stay(device: str) -> None:
    pair = Pair.of(Network(), device, max_graphs=1)
    one, other = (torch.randn(2, rows, 16, device=device) for rows in (4, 5))
    kept = None
    for _ in range(5):
        del kept  # so that the last one is a replay's, whose memory the allocator believes to be free
        kept = pair.compiled(one)
    assert ungraphed(pair.statistics("inference")) == {}
    for _ in range(5):
        same(pair.compiled(other).clone(), pair.eager(other))
    same(kept, pair.eager(one))


@torch.no_grad()
def test_threads(device: str) -> None:
    pair = Pair.of(Network(), device, copy_below=1 << 20)
    inputs = [torch.randn(2, 4, 16, device=device) for _ in range(4)]
    expected = [pair.eager(x) for x in inputs]
    pair.compiled(inputs[0])
    problems: list[BaseException] = []

    def run(which: int) -> None:
        try:
            with torch.no_grad():
                for _ in range(10):
                    same(pair.compiled(inputs[which]), expected[which])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


@torch.no_grad()
@pytest.mark.slow
def test_memory_goes_with_the_program(device: str) -> None:
    from thunder_plugin_cudagraphs.device import device_graphs

    where = torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else torch.device("cpu")
    release_memory()
    before = device_graphs(where).nbytes
    compiled = graphed(lambda x: x @ x)
    x = torch.randn(64, 64, device=device)
    for _ in range(3):
        compiled(x)
    assert device_graphs(where).nbytes > 0
    del compiled
    gc.collect()
    release_memory()
    assert device_graphs(where).nbytes <= before


@pytest.mark.slow
def test_a_capture_that_fails(backend: RecordingBackend) -> None:
    """The call that was to be captured, and all others, run without a graph; nothing is lost."""
    pair = Pair.of(Network(), "cpu", warmup=0)
    for turn in range(6):
        if turn == 1:
            backend.fails = [RuntimeError("no luck\nsecond line")]
        x = torch.randn(2, 4 + turn // 3, 16)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x, turn: Any = turn) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if turn == 3 and model is pair.compiled:
                backend.fails = [RuntimeError("no luck\nsecond line")]
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)
        pair.same_state()
    refused = [one.refused for one in statistics(pair.compiled) if one.refused]
    assert refused == ["its capture failed: RuntimeError: no luck"]


def test_copies_of_a_compiled_model(device: str) -> None:
    pair = Pair.of(Network(), device)
    x = torch.randn(2, 4, 16, device=device)
    with torch.no_grad():
        for _ in range(3):
            pair.compiled(x)
        other = copy.deepcopy(pair.compiled)
        for _ in range(4):
            same(other(x).clone(), pair.eager(x))


@pytest.mark.usefixtures("backend")
def test_modes_that_see_operations() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    compiled = graphed(lambda x: x @ x)
    x = torch.randn(4, 4)
    for _ in range(3):
        compiled(x)
    with FlopCounterMode(display=False) as counter:
        compiled(x)
    assert counter.get_total_flops() == 128
