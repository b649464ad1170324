"""Training steps on several processes, with PyTorch's own wrappers around the model.

    torchrun --nproc-per-node 2 -m benchmarks.distributed --model tiny-llama-1.1b --wrapper fsdp ddp \
        --impl eager compile compile-blocks 'thunder[inductor]' --json result.json

The wrappers, of a model whose weights are float32:

- ``fsdp``: `fully_shard` of each block and of the whole model. Its policy casts parameters to bfloat16 and reduces
  gradients in float32.
- ``zero2``: the same, but parameters stay gathered from forward to backward.
- ``ddp``: DistributedDataParallel, called under bfloat16 autocast.
- ``none``: the model without a wrapper, called under bfloat16 autocast. Run it in one process to measure what a wrapper
  adds.

Each process trains on different batches. The implementations run one after the other in the same processes.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks import machine, options, stored, table
from benchmarks.batches import batches
from benchmarks.implementations import check, compile_with
from benchmarks.measurement import synchronize
from benchmarks.memory import peak_of_call
from benchmarks.row import Row
from benchmarks.task import subject_of
from benchmarks.training_task import WithLoss
from benchmarks.workload import Workload

WRAPPERS = ("fsdp", "zero2", "ddp", "none")
BLOCKS = "compile-blocks"
"""torch.compile of each block inside of the wrapper; ``compile`` is that of the whole, wrapper included."""
PROFILED_STEPS = 2


def main(arguments: list[str] | None = None) -> None:
    """Measure on this process, one of those that torchrun started; rank 0 reports."""
    chosen = _options(arguments)
    torch.set_num_threads(1)
    if chosen.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if chosen.device == "cuda" else "gloo")
    circumstances = machine.describe(1) | {"device": machine.device(chosen.device)}
    rows: list[Row] = []
    for wrapper in chosen.wrapper:
        rows += _compared(chosen, wrapper)
        if dist.get_rank() == 0 and chosen.json:
            stored.write(chosen.json, circumstances, rows)
    if dist.get_rank() == 0:
        table.show(rows, chosen.baseline)
        table.notes(stored.facts(circumstances))
    dist.destroy_process_group()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_workload(parser)
    parser.add_argument("--wrapper", nargs="+", choices=WRAPPERS, default=["fsdp", "ddp"], help="default: fsdp ddp")
    parser.add_argument("--impl", nargs="+", default=["eager", "compile", "thunder"], metavar="IMPL",
                        help=f"as of python -m benchmarks, and {BLOCKS} (default: eager compile thunder)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=20, help="of which the last half are timed (default: 20)")
    parser.add_argument("--baseline", metavar="IMPL", help="ratios refer to it (default: compile, else eager)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    chosen = parser.parse_args(arguments)
    chosen.impl = [name if name == BLOCKS else check(name) for name in chosen.impl]
    if chosen.device == "auto":
        chosen.device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen.precision = ["float32"]
    return chosen


def _compared(chosen: argparse.Namespace, wrapper: str) -> list[Row]:
    """The rows of a wrapper, for each workload."""
    rows = []
    for workload in options.workloads(chosen, ["training"], chosen.device):
        group = f"{workload.label}, {wrapper}, {dist.get_world_size()} processes"
        measured: dict[str, dict[str, float]] = {}
        skipped: dict[str, str] = {}
        for name in chosen.impl:
            try:
                measured[name] = _measure(workload, wrapper, name)
            except Exception as error:  # noqa: BLE001 - the others go on, and the table has the reason
                skipped[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
            if dist.get_rank() == 0:
                print(f"{group}: {name}: {measured.get(name) or skipped[name]}", flush=True)
            gc.collect()
            torch.compiler.reset()
        units = {"step": "ms", "tokens a second, all": "1/s", "first step": "s", "peak of a step": "MiB",
                 "kernels of collectives": "ms", "not overlapped": "ms", "first loss": "", "last loss": ""}  # fmt: skip
        for what, unit in units.items():
            values = {name: figures[what] for name, figures in measured.items() if what in figures}
            if values:
                rows.append(Row(group, what, unit, values, skipped))
    return rows


def _measure(workload: Workload, wrapper: str, name: str) -> dict[str, float]:
    """Figures of one implementation, in the units of their rows; times are this rank's, peaks are of the worst rank."""
    cuda = workload.device == "cuda"
    rank, size = dist.get_rank(), dist.get_world_size()
    subject = subject_of(workload)
    program = _wrapped(WithLoss(subject.module).train(), wrapper, name == BLOCKS)
    compiled = program if name == BLOCKS else compile_with(name, program)
    optimizer = torch.optim.AdamW(program.parameters(), lr=1e-4, fused=True)
    pairs = batches(workload.steps * size, subject, workload)[rank::size]
    autocast = torch.autocast(workload.device, torch.bfloat16, enabled=wrapper in ("ddp", "none"))

    def step(index: int) -> torch.Tensor:
        with autocast:
            loss: torch.Tensor = compiled(*pairs[index % len(pairs)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    losses, seconds = [], []
    for index in range(workload.steps):
        dist.barrier()
        synchronize(workload.device)
        start = time.perf_counter()
        losses.append(step(index))
        synchronize(workload.device)
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[-workload.timed :])
    found = {
        "step": median * 1e3,
        "tokens a second, all": pairs[0][1].numel() * size / median,
        "first step": seconds[0],
        "peak of a step": _largest(_peak(lambda: step(0), cuda), workload.device) / 2**20,
        "first loss": losses[0].item(),
        "last loss": losses[-1].item(),
    }
    return found | (_communication(step) if cuda else {})


def _wrapped(program: nn.Module, wrapper: str, compile_blocks: bool) -> nn.Module:
    """The program in a wrapper; its blocks are the members of the longest list of modules."""
    lists = [part for part in program.modules() if isinstance(part, nn.ModuleList)]
    blocks = list(max(lists, key=len)) if lists else []
    if compile_blocks:
        for block in blocks:
            block.compile(dynamic=False)
    if wrapper == "none":
        return program
    if wrapper == "ddp":
        return DistributedDataParallel(program)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in [*blocks, program]:
        # Parameters of the whole model stay gathered after forward: backward starts with them.
        fully_shard(block, mp_policy=policy, reshard_after_forward=wrapper == "fsdp" and block is not program)
    return program


def _peak(step: Any, cuda: bool) -> int:
    """Bytes at the peak of a step: on a GPU all that is allocated, on a CPU what the step adds."""
    if not cuda:
        return peak_of_call(step)
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated()


def _largest(value: float, device: str) -> float:
    """The largest of all ranks' values."""
    values = torch.tensor(float(value), device=device)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return values.item()


def _communication(step: Any) -> dict[str, float]:
    """Of a step on this rank: milliseconds in which kernels of collectives run, and in which no other kernels do."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for index in range(PROFILED_STEPS):
            step(index)
        torch.cuda.synchronize()
    spans: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for event in recorded.events():
        if event.device_type.name == "CUDA" and not event.is_user_annotation:
            spans["nccl" in event.name.lower()].append((event.time_range.start, event.time_range.end))
    collectives, every = _covered(spans[True]), _covered([*spans[True], *spans[False]])
    scale = 1 / 1e3 / PROFILED_STEPS
    return {
        "kernels of collectives": collectives * scale,
        "not overlapped": (every - _covered(spans[False])) * scale,
    }


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


if __name__ == "__main__":
    main()
