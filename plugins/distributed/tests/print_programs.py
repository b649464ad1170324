"""Prints the programs of a sharded model: `test_schedule_collectives` compares what processes print."""

from __future__ import annotations

import torch
import torch.distributed as dist
from fully_shard_cases import Net, parts

import thunder
from thunder_core.pytorch_internals import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
compiled = thunder.jit(parts(Net(16)), executors=[], transforms=[{"distributed.bucket_collectives": {"largest": 9999}}])
compiled(torch.ones(5, 4)).sum().backward()
print(thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1])
dist.destroy_process_group()
