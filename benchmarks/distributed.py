"""Training steps on several processes, with the model in a wrapper of PyTorch.

    torchrun --nproc-per-node 2 -m benchmarks.distributed --model tiny-llama-1.1b --wrapper fsdp ddp \
        --impl eager compile compile-blocks 'thunder[inductor]' --json result.json

The weights are float32. The wrappers are:

- ``fsdp``: `fully_shard` of each block and of the whole model, with parameters cast to bfloat16 and gradients reduced
  in float32.
- ``parts``: the same with `fully_shard` of each module of a block (norm, attention, MLP).
- ``zero2``: the same as ``fsdp`` without resharding after forward.
- ``hsdp``: the same as ``fsdp`` on a mesh of two groups that each hold all parameters (``replicate``, ``shard``).
- ``tensor``: tensor parallelism in pairs of processes, and ``fsdp`` between the pairs. Attention and MLP of each block
  are split by columns, then by rows; embeddings, norms and the head are not.
- ``sequence``: the same, and between attention and MLP the tokens of a sequence are split over the pair.
- ``ddp``: DistributedDataParallel under bfloat16 autocast.
- ``none``: no wrapper, under bfloat16 autocast. In one process, this is the baseline for the overhead of a wrapper.

Each process trains on different batches, with ``tensor`` and ``sequence`` each pair of processes. With ``--accumulate``
a step has several of them, and the wrapper communicates gradients after the last one alone. The implementations run one
after the other in the same processes.

``python -m benchmarks.distributed --simulate 2 --hardware h200`` with the same model, sizes and wrappers predicts time,
memory and communication of Thunder on GPUs, as ``thunder simulate`` does, in one process without GPUs.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from benchmarks import machine, options, result_file, table
from benchmarks.implementations import check, compile_with
from benchmarks.measurement import synchronize
from benchmarks.memory import peak_of_call
from benchmarks.row import Row
from benchmarks.tasks import WithLoss, batches, model_of
from benchmarks.workload import Workload
from thunder_plugin_distributed.hardware import HARDWARE
from thunder_plugin_distributed.simulation.simulate import simulate

WRAPPERS = ("fsdp", "parts", "zero2", "hsdp", "tensor", "sequence", "ddp", "none")
PAIR = 2
"""Processes that share the parts of a layer in tensor parallelism; groups of replicas of ``hsdp``."""
BLOCKS = "compile-blocks"
"""torch.compile of each block inside of the wrapper; ``compile`` compiles the wrapped model."""
PROFILED_STEPS = 2


def main(arguments: list[str] | None = None) -> None:
    """Measure in one process of torchrun. Rank 0 prints and writes the results."""
    chosen = _options(arguments)
    torch.set_num_threads(1)
    if chosen.simulate:
        return _predict(chosen)
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
    parser.add_argument("--checkpoint", action="store_true", help="backward computes each block again, in all runs")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="batches per step (default: 1)")
    parser.add_argument("--baseline", metavar="IMPL", help="compute ratios to it (default: compile, else eager)")
    parser.add_argument("--simulate", type=int, metavar="N", help="predict the values of N processes; nothing is run")
    parser.add_argument("--hardware", choices=HARDWARE, default="h200", help="of the prediction (default: h200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    chosen = parser.parse_args(arguments)
    if chosen.simulate and chosen.accumulate > 1:
        parser.error("a step of one batch is simulated, without --accumulate")
    try:
        for wrapper in chosen.wrapper if chosen.simulate else ():
            _mesh_sizes(wrapper, chosen.simulate)
    except ValueError as error:
        parser.error(str(error))
    chosen.impl = [name if name == BLOCKS else check(name) for name in chosen.impl]
    if chosen.device == "auto":
        chosen.device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen.precision = ["float32"]
    return chosen


def _compare(chosen: argparse.Namespace, wrapper: str) -> list[Row]:
    """Measure each workload in a wrapper, and return the rows."""
    rows = []
    for workload in options.workloads(chosen, ["training"], chosen.device):
        group = _group(chosen, workload, wrapper, dist.get_world_size())
        measured: dict[str, dict[str, float]] = {}
        skipped: dict[str, str] = {}
        for name in chosen.impl:
            try:
                measured[name] = _measure(workload, wrapper, name, chosen.accumulate, chosen.checkpoint)
            except Exception as error:  # noqa: BLE001 - the table shows the reason
                skipped[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
            if dist.get_rank() == 0:
                print(f"{group}: {name}: {measured.get(name) or skipped[name]}", flush=True)
            gc.collect()
            torch.compiler.reset()
        rows += _rows(group, measured, skipped)
    return rows


def _group(chosen: argparse.Namespace, workload: Workload, wrapper: str, size: int) -> str:
    group = f"{workload.label}, {wrapper}, {size} processes"
    group += ", checkpoint" if chosen.checkpoint else ""
    return group + (f", {chosen.accumulate} batches a step" if chosen.accumulate > 1 else "")


def _rows(group: str, measured: dict[str, dict[str, float]], skipped: dict[str, str]) -> Iterator[Row]:
    units = {"step": "ms", "tokens a second, all": "1/s", "first step": "s", "peak of a step": "MiB",
             "kernels of collectives": "ms", "not overlapped": "ms", "first loss": "", "last loss": ""}  # fmt: skip
    for what, unit in units.items():
        values = {name: figures[what] for name, figures in measured.items() if what in figures}
        if values:
            yield Row(group, what, unit, values, skipped)


def _predict(chosen: argparse.Namespace) -> None:
    """Print and write the predicted values of each wrapper, without other processes."""
    rows: list[Row] = []
    for wrapper in chosen.wrapper:
        for workload in options.workloads(chosen, ["training"], "cuda"):
            found = _prediction(workload, wrapper, chosen)
            rows += _rows(_group(chosen, workload, wrapper, chosen.simulate), {"simulated": found}, {})
    environment = machine.describe(1) | {"device": f"{chosen.simulate} {chosen.hardware}, simulated"}
    if chosen.json:
        result_file.write(chosen.json, environment, rows)
    table.show(rows, None)


def _prediction(workload: Workload, wrapper: str, chosen: argparse.Namespace) -> dict[str, float]:
    """The predicted values, in the units of their rows. Executor `inductor` makes the regions, as it does on a GPU."""
    workload = replace(workload, device="cpu")

    def make(mesh: DeviceMesh) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        model = model_of(workload)
        program = _checkpointed(WithLoss(model.module).train(), chosen.checkpoint)
        (pair,) = batches(1, model, workload)
        return _wrapped(program, wrapper, False, "cpu"), (pair.inputs, pair.targets), pair.more

    with torch.autocast("cpu", torch.bfloat16, enabled=wrapper in ("ddp", "none")):
        found = simulate(
            make, chosen.simulate, _mesh_sizes(wrapper, chosen.simulate), HARDWARE[chosen.hardware],
            optimizer=chosen.optimizer, options={"executors": ["inductor"]},
        )  # fmt: skip
    times = found.times
    return {
        "step": times.step * 1e3,
        "peak of a step": found.memory.peak / 2**20,
        "kernels of collectives": times.communication * 1e3,
        "not overlapped": times.exposed * 1e3,
    }


def _measure(workload: Workload, wrapper: str, name: str, accumulate: int, checkpoint: bool) -> dict[str, float]:
    """The values of an implementation, in the units of their rows. Times are of this rank, peaks maxima over ranks."""
    cuda = workload.device == "cuda"
    rank, size = dist.get_rank(), dist.get_world_size()
    if wrapper in ("tensor", "sequence"):
        rank, size = rank // PAIR, size // PAIR
    model = model_of(workload)
    program = _checkpointed(WithLoss(model.module).train(), checkpoint)
    program = _wrapped(program, wrapper, name == BLOCKS, workload.device)
    compiled = program if name == BLOCKS else compile_with(name, program)
    optimizers = [torch.optim.AdamW(group, lr=1e-4, fused=True) for group in _by_mesh(program)]
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
        for optimizer in optimizers:
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


def _checkpointed(program: nn.Module, checkpoint: bool) -> nn.Module:
    """The program, in place, whose backward computes each block again if ``checkpoint`` is true."""
    blocks = _blocks(program)
    if checkpoint:
        apply_activation_checkpointing(program, check_fn=lambda part: any(part is block for block in blocks))
    return program


def _wrapped(program: nn.Module, wrapper: str, compile_blocks: bool, device: str) -> nn.Module:
    """The program in a wrapper. Its blocks are the elements of its longest `nn.ModuleList`.

    Raises:
        ValueError: the number of processes, or the model, does not fit the wrapper.
    """
    blocks = _blocks(program)
    mesh = _mesh(wrapper, device)
    if wrapper in ("tensor", "sequence"):
        for block in blocks:
            _split(block, mesh["tensor"], sequence=wrapper == "sequence")
        if wrapper == "sequence":
            _split_tokens(program, blocks, mesh["tensor"])
        mesh = mesh["data"]
    if compile_blocks:
        for block in blocks:
            block.compile(dynamic=False)
    if wrapper == "none":
        return program
    if wrapper == "ddp":
        return DistributedDataParallel(program, init_sync=dist.get_backend() != "fake")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if wrapper == "parts":
        blocks = [part for block in blocks for part in block.children() if any(True for _ in part.parameters())]
    for block in [*blocks, program]:
        # The parameters of the root module are not resharded after forward, because backward uses them first.
        reshard = wrapper != "zero2" and block is not program
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    return program


def _blocks(program: nn.Module) -> list[nn.Module]:
    lists = [part for part in program.modules() if isinstance(part, nn.ModuleList)]
    return list(max(lists, key=len)) if lists else []


def _mesh(wrapper: str, device: str) -> DeviceMesh:
    size = dist.get_world_size()
    sizes = _mesh_sizes(wrapper, size)
    return init_device_mesh(device, tuple(sizes.values()) or (size,), mesh_dim_names=tuple(sizes) or None)


def _mesh_sizes(wrapper: str, size: int) -> dict[str, int]:
    """The sizes of the mesh of a wrapper by name; none for a mesh of one dimension.

    Raises:
        ValueError: the number of processes, ``size``, does not fit the wrapper.
    """
    if wrapper not in ("hsdp", "tensor", "sequence"):
        return {}
    if size % PAIR:
        raise ValueError(f"{wrapper} needs an even number of processes, not {size}")
    return {"replicate": PAIR, "shard": size // PAIR} if wrapper == "hsdp" else {"data": size // PAIR, "tensor": PAIR}


def _split(block: nn.Module, mesh: DeviceMesh, *, sequence: bool) -> None:
    """Split the attention and the MLP of a block of Llama of Hugging Face over a mesh."""
    block = getattr(block, "_checkpoint_wrapped_module", block)
    names = {name for name, _ in block.named_modules()}
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    rows = ("self_attn.o_proj", "mlp.down_proj")
    norms = ("input_layernorm", "post_attention_layernorm")
    if not names.issuperset((*columns, *rows, *norms)):
        raise ValueError(f"tensor parallelism needs a model with the blocks of hf:llama, not {type(block).__name__}")
    tokens = Shard(1)
    plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel(output_layouts=tokens if sequence else Replicate()) for name in rows}
    if sequence:
        plan |= {name: SequenceParallel() for name in norms}
        plan["self_attn"] = PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": tokens}, desired_input_kwarg_layouts={"hidden_states": Replicate()}
        )
        plan["mlp"] = PrepareModuleInput(input_layouts=(tokens,), desired_input_layouts=(Replicate(),))
    parallelize_module(block, mesh, plan)


def _split_tokens(program: nn.Module, blocks: list[nn.Module], mesh: DeviceMesh) -> None:
    """Split the tokens of a sequence before the first block, and gather them before the norm after the last."""
    everything, tokens = (Replicate(),), (Shard(1),)
    (parent,) = [part for part in program.modules() if any(child is blocks[0] for child in getattr(part, "layers", ()))]
    before = PrepareModuleInput(input_layouts=everything, desired_input_layouts=tokens, use_local_output=True)
    after = PrepareModuleInput(input_layouts=tokens, desired_input_layouts=everything, use_local_output=True)
    parallelize_module(parent, mesh, {"layers.0": before, "norm": after})


def _by_mesh(program: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters, by mesh: a fused optimizer takes those of one."""
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in program.parameters():
        groups.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return list(groups.values())


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
