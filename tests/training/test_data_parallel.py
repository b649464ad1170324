"""Compiled modules under DistributedDataParallel, in one process; ``no_sync``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.subjects import SUBJECT, eager
from tests.training.steps import assert_same, mlp_with_dropout, step


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}], ids=str)
def test_distributed_data_parallel(options: dict[str, Any]) -> None:
    """Steps with synchronisation, without it, and with it again; hooks of the reducer fire for each parameter."""

    def scenario(model: Any) -> Any:
        parallel = DistributedDataParallel(model, **options)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        losses = []
        for round_number in range(6):
            if round_number % 3 == 0:
                optimizer.zero_grad()
                with parallel.no_sync():
                    losses.append(step(parallel, torch.randn(5, 4)))
            losses.append(step(parallel, torch.randn(5, 4)))
            optimizer.step()
        return losses, [p.grad.clone() for p in parallel.parameters()]

    assert_same(mlp_with_dropout, scenario)


@pytest.mark.usefixtures("process_group")
def test_gradient_buckets_are_seen_by_a_communication_hook() -> None:
    def scenario(model: Any) -> Any:
        parallel = DistributedDataParallel(model)
        buckets = []

        def hook(_, bucket):  # PyTorch compares annotations with classes
            buckets.append(bucket.buffer().clone())
            future = torch.futures.Future()
            future.set_result(bucket.buffer() * 2)
            return future

        parallel.register_comm_hook(None, hook)
        step(parallel, torch.randn(5, 4))
        return buckets

    assert_same(mlp_with_dropout, scenario)


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled modules")
def test_no_sync_of_a_compiled_module() -> None:
    """Accepted without data parallelism, where it changes nothing."""
    model, twin = mlp_with_dropout().eval(), mlp_with_dropout().eval()
    twin.load_state_dict(model.state_dict())
    compiled = SUBJECT(twin)
    x, y = torch.randn(5, 4), torch.randn(5, 4)
    with compiled.no_sync():
        step(compiled, x)
    step(compiled, y)
    step(model, x)
    step(model, y)
    for expected, actual in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad)


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled modules")
@pytest.mark.usefixtures("process_group")
def test_data_parallelism_inside_a_compiled_module() -> None:
    """``plugins/distributed`` has the tests in two processes."""
    model, twin = (DistributedDataParallel(mlp_with_dropout().eval()) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    compiled, x = SUBJECT(twin), torch.randn(5, 4)
    for trained in (model, compiled):
        step(trained, x)
        with trained.no_sync():
            step(trained, x)
        step(trained, x)
    for expected, actual in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(actual.grad, expected.grad)
