"""Ranks whose Python hashes texts otherwise communicate in the same order: their traces are the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from fully_shard_cases import Net, parts
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import thunder
from thunder_testing.forked import start_forked

SEED = "4711"
"""Of one of the processes; the other one is forked from a process that Python started with a random one."""


class Branches(nn.Module):
    """Independent branches, whose collectives could be in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("a", "b", "c", "d")})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([branch(x) for branch in self.branches.values()]).sum(0)


def sharded() -> nn.Module:
    model = Branches()
    for branch in model.branches.values():
        fully_shard(branch)
    return fully_shard(model)


def parallel() -> nn.Module:
    model, mesh = Branches(), init_device_mesh("cpu", (2,))
    columns, rows = ColwiseParallel(output_layouts=Replicate()), RowwiseParallel(input_layouts=Replicate())
    plan = {"branches.a": columns, "branches.b": rows, "branches.c": columns}
    return parallelize_module(model, mesh, plan)


def replicated() -> nn.Module:
    return DistributedDataParallel(Branches(), bucket_cap_mb=0.00005)


def merged() -> nn.Module:
    """Its small collectives become one: see `TRANSFORMS`."""
    return parts(Net(16))


TRANSFORMS = [{"distributed.bucket_collectives": {"largest": 9999}}]


def in_several_groups(x: torch.Tensor) -> torch.Tensor:
    parts = [x * (count + 1) for count in range(6)]
    works = [dist.all_reduce(part, group=group, async_op=True) for part in parts for group in GROUPS]
    for work in works:
        work.wait()
    return torch.stack(parts)


GROUPS: list[dist.ProcessGroup] = []


def main() -> None:
    """Print the hash of a text, and one of the traces of each program, as rank 0 of two that send nothing."""
    from thunder_core.pytorch_internals import FakeStore

    print(hash("text"))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    GROUPS.extend([dist.new_group([0, 1]) for _ in range(3)])
    for build in (sharded, parallel, replicated, merged):
        torch.manual_seed(0)
        program = thunder.jit(build(), transforms=TRANSFORMS if build is merged else ())
        program(torch.ones(2, 4)).sum().backward()
        show(build.__name__, (*thunder.last_traces(program), *thunder.last_backward_traces(program)))
    program = thunder.jit(in_several_groups)
    program(torch.ones(2, 4))
    show(in_several_groups.__name__, thunder.last_traces(program))


def show(name: str, traces: tuple[object, ...]) -> None:
    text = "\n".join(map(str, traces))
    print(name, len(traces), hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.slow
def test_traces_do_not_depend_on_the_hashes_of_texts() -> None:
    forked = start_forked(Path(__file__))
    command, environment = [sys.executable, str(Path(__file__))], os.environ | {"PYTHONHASHSEED": SEED}
    started = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=100)
    other = forked.wait()
    assert other.returncode == 0, other.stderr
    seeds, traces = zip(*[each.stdout.split("\n", 1) for each in (started, other)], strict=True)
    assert seeds[0] != seeds[1], "the processes hash texts alike"
    assert len(traces[0].splitlines()) == 5
    assert traces[0] == traces[1]


if __name__ == "__main__":
    main()
