"""One step of a program of many ranks, without machines: it is compiled as one rank of a fake process group."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from types import FrameType
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from thunder.report.collectives_report import CollectiveReport
from thunder.report.compile_report import entry_report
from thunder_core.autodiff.partitioning.dependence import Dependence
from thunder_core.autodiff.partitioning.partition import curve_of
from thunder_core.autodiff.partitioning.recompute import parse_policy
from thunder_core.errors import OptionError, ThunderError
from thunder_core.executors.executor import fusing
from thunder_core.ir.location import SourceLocation
from thunder_core.passes.base import Phase
from thunder_core.passes.delete_last_use import with_deletions
from thunder_core.pytorch_internals import FakeStore
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.program_cache import NotRun
from thunder_plugin_distributed.hardware import Hardware
from thunder_plugin_distributed.simulation.memory import Peak, peak_of
from thunder_plugin_distributed.simulation.timeline import Times, times_of
from thunder_plugin_distributed.simulation.unallocated import Unallocated

Optimizer = Literal["none", "sgd", "adamw"]
_OPTIMIZERS: Final[dict[str, tuple[int, int]]] = {"none": (0, 0), "sgd": (0, 3), "adamw": (2, 7)}
"""For each parameter how many tensors of its size are states, and how many a step reads and writes."""
Made = Callable[[DeviceMesh], tuple[Any, tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Memory:
    """The memory of one rank, in bytes.

    Attributes:
        parameters, buffers: those of the model on this rank.
        optimizer: the states of an optimizer.
        programs: the peak of other tensors of the programs, gradients included.
        phase, location: the program and the user's line of the peak; no line if PyTorch's modules alone compute it.
    """

    parameters: int
    buffers: int
    optimizer: int
    programs: int
    phase: str
    location: str | None

    @property
    def peak(self) -> int:
        """The sum."""
        return self.parameters + self.buffers + self.optimizer + self.programs


@dataclass(frozen=True)
class CurvePoint:
    """A step with a budget of memory.

    Attributes:
        peak: its peak memory in bytes, with parameters, buffers and the states of the optimizer.
        seconds: its time.
        added: the time that recomputation adds, as a share of that of the first point.
        saved: the bytes that forward saves for backward.
        recomputed: the number of values that backward recomputes.
    """

    peak: int
    seconds: float
    added: float
    saved: int
    recomputed: int


@dataclass(frozen=True)
class Simulation:
    """The prediction for one step of one rank.

    Attributes:
        world_size, mesh, rank: how many ranks there are, the sizes of the mesh by name, and the rank.
        hardware: the name of the hardware of `times`.
        collectives: its collectives.
        axes: the dimension of the mesh that a process group is, by the group's name.
        memory, times: predicted.
        compile_seconds: the duration of the compilation on this machine.
        curve: the choices of the option ``memory``, from the fastest to the one that needs least.
    """

    world_size: int
    mesh: dict[str, int]
    rank: int
    hardware: str
    collectives: tuple[CollectiveReport, ...]
    axes: dict[str, str]
    memory: Memory
    times: Times
    compile_seconds: float
    curve: tuple[CurvePoint, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes that the rank sends."""
        return sum(each.bytes for each in self.collectives)


def simulate(
    make: Made,
    world_size: int,
    mesh: Mapping[str, int],
    hardware: Hardware,
    *,
    rank: int = 0,
    train: bool = True,
    optimizer: Optimizer = "adamw",
    options: Mapping[str, Any] | None = None,
    curve: bool = False,
) -> Simulation:
    """Compile the program that ``make`` returns for one rank, and predict its step. Nothing is run.

    Args:
        make: called with the mesh, on the CPU; returns the model, or a function, and arguments for one call. Large
            tensors that it creates are not initialized. Tensors on the device ``meta`` are then moved to the CPU, not
            initialized either.
        mesh: sizes by name; their product is the number of ranks.
        optimizer: the optimizer whose states and step are included; "adamw" has two tensors for each parameter, of its
            dtype.
        options: for `thunder.jit`.
        curve: whether to predict the steps with less memory, too.

    Raises:
        OptionError: the mesh does not have ``world_size`` ranks, or ``rank`` is out of range.
        ThunderError: a process group is initialized already, or the program is not compiled but run by eager PyTorch.
    """
    sizes = dict(mesh) or {"ranks": world_size}
    if prod(sizes.values()) != world_size:
        shape = " x ".join(f"{name}={size}" for name, size in sizes.items())
        raise OptionError(f"the mesh {shape} has {prod(sizes.values())} ranks, but the world size is {world_size}")
    if not 0 <= rank < world_size:
        raise OptionError(f"rank {rank} is out of range for {world_size} ranks, which are numbered from 0")
    with _fake_world(rank, world_size):
        device_mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        with Unallocated():
            program, args, kwargs = make(device_mesh)
            if isinstance(program, torch.nn.Module) and any(each.device.type == "meta" for each in _tensors([program])):
                program.to_empty(device="cpu")
        entry = _compiled(program, args, kwargs, train, dict(options or {}))
        programs = entry.program.executed
        states, moved = _OPTIMIZERS[optimizer if train else "none"]
        trained = _bytes_of(each for each in _parameters(program) if each.requires_grad)
        memory = _memory(program, peak_of(programs), states * trained)
        axes = {str(device_mesh.get_group(name).group_name): name for name in sizes}
        update = hardware.compute_seconds(0, moved * trained, torch.float32)
        times = replace(times_of(programs, entry.groups, hardware), optimizer=update)
        report = entry_report(entry)
        collectives, seconds = report.collectives, report.seconds
        points = tuple(_curve(entry, memory, hardware, update)) if curve else ()
        return Simulation(world_size, sizes, rank, hardware.name, collectives, axes, memory, times, seconds, points)


_STEPS_BETWEEN: Final = 4
"""The number of steps from one point of a curve to the next where layers change together."""


def _curve(entry: CacheEntry, memory: Memory, hardware: Hardware, update: float) -> Iterator[CurvePoint]:
    """The choices for budgets of memory, of the programs before executors claim ops."""
    program = entry.program.differentiated
    if program is None:
        return
    fused = bool(fusing(entry.executors))
    policy = parse_policy(program.late.compilation.policy, fused)
    curve = curve_of(Dependence.of(program.joint), policy)
    points = [curve.points[0]]
    for higher, lower in pairwise(curve.points):
        for each in (*curve.between(lower, higher, _STEPS_BETWEEN), lower):
            if each.peak.bytes < points[-1].peak.bytes:
                points.append(each)
    first = 0.0
    for point in points:
        programs = {
            Phase.FORWARD: with_deletions(point.partitioned.forward),
            Phase.BACKWARD: with_deletions(point.partitioned.backward),
        }
        seconds = times_of(programs, entry.groups, hardware).step + update
        first = first or seconds
        peak = memory.parameters + memory.buffers + memory.optimizer + peak_of(programs).bytes
        saved, recomputed = point.partitioned.bytes_saved, len(point.partitioned.recomputed)
        yield CurvePoint(peak, seconds, seconds / first - 1 if first else 0.0, saved, recomputed)


@contextmanager
def _fake_world(rank: int, world_size: int) -> Iterator[None]:
    if dist.is_initialized():
        raise ThunderError("a process group is already initialized; the simulation creates its own")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _compiled(
    program: Any, args: tuple[Any, ...], kwargs: dict[str, Any], train: bool, options: dict[str, Any]
) -> CacheEntry:
    """The entry of a call, which does not run."""
    import thunder
    from thunder._inspection import compiled_program

    jitted = thunder.jit(program, **options)
    compiled = compiled_program(jitted)
    compiled.compiles_only = True
    try:
        with torch.set_grad_enabled(train):
            jitted(*args, **kwargs)
    except NotRun as stopped:
        if stopped.entry.raised is not None:
            raise ThunderError(
                "the program raises an exception in this call, possibly because the simulation computes no values of "
                "tensors"
            ) from stopped
        return stopped.entry
    reasons = "; ".join(compiled.fallbacks) or "it has a compiled program already"
    raise ThunderError(f"nothing was compiled, as eager PyTorch ran the program: {reasons}")


def _memory(program: Any, peak: Peak, states: int) -> Memory:
    parameters = _bytes_of(_parameters(program))
    buffers = _bytes_of(_tensors(_modules(program))) - parameters
    location = None
    if peak.location is not None and replace(peak.location, module="") not in _calling_lines():
        location = peak.location.place()
    return Memory(parameters, buffers, states, peak.bytes, peak.phase, location)


def _calling_lines() -> Iterator[SourceLocation]:
    """The lines of the calls of `simulate`. Ops without a line of the program are located there."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        frame = frame.f_back


def _modules(program: Any) -> list[torch.nn.Module]:
    """The program, or the modules that a function closes over or uses as globals, or that an object has."""
    values: list[Any] = [program, getattr(program, "__self__", None)]
    if inspect.isfunction(program):
        variables = inspect.getclosurevars(program)
        values += [*variables.nonlocals.values(), *variables.globals.values()]
    elif not isinstance(program, torch.nn.Module):
        values += getattr(program, "__dict__", {}).values()
    return [value for value in values if isinstance(value, torch.nn.Module)]


def _tensors(modules: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    """The parameters and buffers of the modules, each once."""
    every = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    return list({id(tensor): tensor for tensor in every}.values())


def _parameters(program: Any) -> list[torch.Tensor]:
    return [each for each in _tensors(_modules(program)) if isinstance(each, torch.nn.Parameter)]


def _bytes_of(tensors: Iterable[Any]) -> int:
    """Of the elements that this rank has: of a DTensor, its shard."""
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum(int(each.numel() * each.element_size()) for each in local)
