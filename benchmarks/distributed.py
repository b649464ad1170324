"""Training steps on several processes, with the model in a wrapper of PyTorch.

    torchrun --nproc-per-node 2 -m benchmarks.distributed --model tiny-llama-1.1b --wrapper fsdp ddp \
        --impl eager compile compile-blocks 'thunder[inductor]' --json result.json

The weights are float32. The wrappers are:

- ``fsdp``: `fully_shard` of each block and of the whole model, with parameters cast to bfloat16 and gradients reduced
  in float32.
- ``parts``: the same with `fully_shard` of each module of a block (norm, attention, MLP).
- ``zero2``: the same as ``fsdp`` without resharding after forward.
- ``ddp``: DistributedDataParallel under bfloat16 autocast.
- ``none``: no wrapper, under bfloat16 autocast. In one process, this is the baseline for the overhead of a wrapper.

Each process trains on different batches. With ``--accumulate`` a step has several of them, and the wrapper communicates
gradients after the last one alone. The implementations run one after the other in the same processes.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks import machine, options, result_file, table
from benchmarks.implementations import check, compile_with
from benchmarks.measurement import synchronize
from benchmarks.memory import peak_of_call
from benchmarks.row import Row
from benchmarks.tasks import WithLoss, batches, model_of
from benchmarks.workload import Workload

WRAPPERS = ("fsdp", "parts", "zero2", "ddp", "none")
BLOCKS = "compile-blocks"
"""torch.compile of each block inside of the wrapper; ``compile`` compiles the wrapped model."""
PROFILED_STEPS = 2


def main(arguments: list[str] | None = None) -> None:
    """Measure in one process of torchrun. Rank 0 prints and writes the results."""
    chosen = _options(arguments)
    torch.set_num_threads(1)
    if chosen.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if chosen.device == "cuda" else "gloo")
    environment = machine.describe(1) | {"device": machine.device(chosen.device)}
    rows: list[Row] = []
    for wrapper in chosen.wrapper:
        rows += _compare(chosen, wrapper)
        if dist.get_rank() == 0 and chosen.json:
            result_file.write(chosen.json, environment, rows)
    if dist.get_rank() == 0:
        table.show(rows, chosen.baseline)
        table.notes(result_file.summary_lines(environment))
    dist.destroy_process_group()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_workload(parser)
    parser.add_argument("--wrapper", nargs="+", choices=WRAPPERS, default=["fsdp", "ddp"], help="default: fsdp ddp")
    parser.add_argument("--impl", nargs="+", default=["eager", "compile", "thunder"], metavar="IMPL",
                        help=f"as of python -m benchmarks, and {BLOCKS} (default: eager compile thunder)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=20, help="steps per run; the last half are timed (default: 20)")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="batches per step (default: 1)")
    parser.add_argument("--baseline", metavar="IMPL", help="compute ratios to it (default: compile, else eager)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    chosen = parser.parse_args(arguments)
    chosen.impl = [name if name == BLOCKS else check(name) for name in chosen.impl]
    if chosen.device == "auto":
        chosen.device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen.precision = ["float32"]
    return chosen


def _compare(chosen: argparse.Namespace, wrapper: str) -> list[Row]:
    """Measure each workload in a wrapper, and return the rows."""
    rows = []
    for workload in options.workloads(chosen, ["training"], chosen.device):
        group = f"{workload.label}, {wrapper}, {dist.get_world_size()} processes"
        group += f", {chosen.accumulate} batches a step" if chosen.accumulate > 1 else ""
        measured: dict[str, dict[str, float]] = {}
        skipped: dict[str, str] = {}
        for name in chosen.impl:
            try:
                measured[name] = _measure(workload, wrapper, name, chosen.accumulate)
            except Exception as error:  # noqa: BLE001 - the table shows the reason
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


def _measure(workload: Workload, wrapper: str, name: str, accumulate: int) -> dict[str, float]:
    """The values of an implementation, in the units of their rows. Times are of this rank, peaks maxima over ranks."""
    cuda = workload.device == "cuda"
    rank, size = dist.get_rank(), dist.get_world_size()
    model = model_of(workload)
    program = _wrapped(WithLoss(model.module).train(), wrapper, name == BLOCKS)
    compiled = program if name == BLOCKS else compile_with(name, program)
    optimizer = torch.optim.AdamW(program.parameters(), lr=1e-4, fused=True)
    pairs = batches(workload.steps * accumulate * size, model, workload)[rank::size]
    autocast = torch.autocast(workload.device, torch.bfloat16, enabled=wrapper in ("ddp", "none"))

    def batch(index: int) -> torch.Tensor:
        with autocast:
            pair = pairs[index % len(pairs)]
            loss: torch.Tensor = compiled(pair.inputs, pair.targets, **pair.more)
        loss.backward()
        return loss

    def step(index: int) -> torch.Tensor:
        for part in range(accumulate - 1):
            with _without_communication(program):
                batch(index * accumulate + part)
        loss = batch(index * accumulate + accumulate - 1)
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
    values = {
        "step": median * 1e3,
        "tokens a second, all": pairs[0][1].numel() * accumulate * size / median,
        "first step": seconds[0],
        "peak of a step": _largest(_peak(lambda: step(0), cuda), workload.device) / 2**20,
        "first loss": losses[0].item(),
        "last loss": losses[-1].item(),
    }
    return values | (_communication(step) if cuda else {})


def _wrapped(program: nn.Module, wrapper: str, compile_blocks: bool) -> nn.Module:
    """The program in a wrapper. Its blocks are the elements of its longest `nn.ModuleList`."""
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
    if wrapper == "parts":
        blocks = [part for block in blocks for part in block.children() if any(True for _ in part.parameters())]
    for block in [*blocks, program]:
        # The parameters of the root module are not resharded after forward, because backward uses them first.
        fully_shard(block, mp_policy=policy, reshard_after_forward=wrapper != "zero2" and block is not program)
    return program


@contextmanager
def _without_communication(program: Any) -> Iterator[None]:
    """Gradients are accumulated, and not communicated."""
    if isinstance(program, DistributedDataParallel):
        with program.no_sync():
            yield
    elif isinstance(program, FSDPModule):
        program.set_requires_gradient_sync(False)
        yield
        program.set_requires_gradient_sync(True)
    else:
        yield


def _peak(step: Any, cuda: bool) -> int:
    """Peak bytes of a step: on a GPU all allocated memory, on a CPU the additional memory of the step."""
    if not cuda:
        return peak_of_call(step)
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated()


def _largest(value: float, device: str) -> float:
    """The maximum over all ranks."""
    values = torch.tensor(float(value), device=device)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return values.item()


def _communication(step: Any) -> dict[str, float]:
    """Milliseconds per step in which kernels of collectives run on this rank, and in which no other kernels run."""
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
    """The total length of a union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


if __name__ == "__main__":
    main()
