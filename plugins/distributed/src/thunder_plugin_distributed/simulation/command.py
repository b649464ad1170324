"""``thunder simulate``: predicts communication, memory and time of one rank of many."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thunder.command_line.config import check_is_there
from thunder.command_line.explain import INPUTS, names_in, without_own_frames
from thunder.command_line.output import Column, print_json, print_lines, print_table

if TYPE_CHECKING:
    from thunder_plugin_distributed.hardware import Hardware
    from thunder_plugin_distributed.simulation.simulate import Made, Simulation

_PROGRAM = (
    "The program: path/to/program.py:NAME or package.module:NAME. NAME is an nn.Module, a function, or a function with "
    "the parameter `mesh`, a DeviceMesh of the CPU, that returns one of these: wrapped by fully_shard, "
    "DistributedDataParallel (with init_sync=False) or parallelize_module on this mesh. It may return a pair of the "
    "program and its inputs."
)
_HARDWARE = "h100, h200, or a YAML or JSON file with the fields of thunder_plugin_distributed.hardware.Hardware."


def simulate(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=_PROGRAM)],
    world_size: Annotated[int, typer.Option(min=1, help="The number of ranks.")],
    mesh: Annotated[str, typer.Option(help="Sizes of the mesh by name, dp=128,tp=8; one dimension by default.")] = "",
    rank: Annotated[int, typer.Option(min=0, help="The rank to simulate.")] = 0,
    inputs: Annotated[str | None, typer.Option(help=INPUTS)] = None,
    hardware: Annotated[str, typer.Option(help=_HARDWARE)] = "h100",
    optimizer: Annotated[
        str, typer.Option(help="The optimizer whose states and step are included: adamw, sgd or none.")
    ] = "adamw",
    curve: Annotated[
        bool, typer.Option("--curve", help="Also predict the steps with less memory: the choices of memory=.")
    ] = False,
    inference: Annotated[bool, typer.Option("--inference", help="Simulate a call without gradients.")] = False,
    config: Annotated[str | None, typer.Option(help="A configuration: a file, or the name of a preset.")] = None,
    executors: Annotated[str, typer.Option(help="Names of executors, in order: a,b. None by default.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict a training step of many ranks, without machines.

    Compiles the program as one rank of a fake process group. Shows the collectives by kind and process group, the bytes
    that the rank sends, its peak memory, and the time that it waits for communication, by a cost model of links and
    compute. The program does not run: there are no other processes, and large weights are not allocated.
    """
    check_is_there(config)
    options: dict[str, Any] = {"executors": names_in(executors)} if config is None or executors else {}
    options |= {} if config is None else {"config": config}
    sizes, device = _sizes(mesh), _hardware(hardware)
    if optimizer not in ("adamw", "sgd", "none"):
        raise typer.BadParameter(f"{optimizer!r} is not one of adamw, sgd, none", param_hint="--optimizer")
    if curve and inference:
        raise typer.BadParameter("a call without gradients has nothing to recompute", param_hint="--curve")
    with contextlib.redirect_stdout(sys.stderr), without_own_frames(program):
        from thunder_plugin_distributed.simulation.simulate import simulate as run

        made = _maker(program, inputs)
        chosen: Any = optimizer
        train = not inference
        found = run(
            made, world_size, sizes, device, rank=rank, train=train, optimizer=chosen, options=options, curve=curve
        )
    if json:
        print_json(_as_data(program, found))
    else:
        _print(program, found)


def _sizes(text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for item in filter(None, [part.strip() for part in text.split(",")]):
        name, _, size = item.partition("=")
        if not name.isidentifier() or not size.isdigit() or not int(size) or name in sizes:
            raise typer.BadParameter(f"{text!r} is not a mesh; write dp=128,tp=8", param_hint="--mesh")
        sizes[name] = int(size)
    return sizes


def _hardware(name: str) -> Hardware:
    from pathlib import Path

    from pydantic import ValidationError

    from thunder.config.yaml_text import read_text
    from thunder_plugin_distributed.hardware import HARDWARE, Hardware

    if name in HARDWARE:
        return HARDWARE[name]
    if not Path(name).is_file():
        raise typer.BadParameter(
            f"{name!r} is neither a file nor one of {', '.join(HARDWARE)}", param_hint="--hardware"
        )
    data, _, problems = read_text(Path(name).read_text(encoding="utf-8"), name, as_json=name.endswith(".json"))
    if problems:
        raise typer.BadParameter("; ".join(map(str, problems)), param_hint="--hardware")
    try:
        return Hardware.model_validate(data)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise typer.BadParameter(f"{name}: {found}", param_hint="--hardware") from error


def _maker(target: str, inputs: str | None) -> Made:
    """A function from the mesh to the program and the arguments of a call."""
    from thunder.command_line.program import load_for_mesh

    load = load_for_mesh(target)

    def make(mesh: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        program = load(mesh)
        args, kwargs = program.arguments(inputs)
        return program.called, args, kwargs

    return make


def _rows(found: Simulation) -> list[dict[str, Any]]:
    """The collectives by phase, kind and group."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in found.collectives:
        row = rows.setdefault(
            (each.phase, each.kind, each.group),
            {
                "phase": each.phase, "kind": each.kind, "group": found.axes.get(each.group, each.group),
                "ranks": each.ranks, "count": 0, "bytes": 0,
            },
        )  # fmt: skip
        row["count"] += 1
        row["bytes"] += each.bytes
    return list(rows.values())


def _print(target: str, found: Simulation) -> None:
    from thunder.report.amounts import bytes_text, percent

    shape = ", ".join(f"{name}={size}" for name, size in found.mesh.items())
    title = f"{target}: rank {found.rank} of {found.world_size} ({shape}), compiled in {found.compile_seconds:.2f} s"
    print_lines([title, ""])
    columns = [
        *map(Column, ("PHASE", "COLLECTIVE", "GROUP")),
        *[Column(name, right=True) for name in ("RANKS", "COUNT", "SENT")],
    ]
    rows = [
        [row["phase"], row["kind"], row["group"], str(row["ranks"]), str(row["count"]), bytes_text(row["bytes"])]
        for row in _rows(found)
    ]
    if rows:
        print_table(columns, rows)
    memory, times = found.memory, found.times
    parts = f"parameters {bytes_text(memory.parameters)}, buffers {bytes_text(memory.buffers)}, optimizer "
    parts += f"{bytes_text(memory.optimizer)}, gradients and activations {bytes_text(memory.programs)}"
    where = f" in {memory.phase}" + (f" at {memory.location}" if memory.location else "")
    print_lines([
        "" if rows else "no collectives",
        f"sent by the rank in a step: {bytes_text(found.bytes)}",
        f"peak memory{where}: {bytes_text(memory.peak)} ({parts})",
        f"time on {found.hardware}: {_ms(times.step)}, of which {_ms(times.exposed)} wait for communication "
        f"(compute {_ms(times.compute)}, communication {_ms(times.communication)}, optimizer {_ms(times.optimizer)})",
    ])  # fmt: skip
    if found.curve:
        print_lines([""])
        titles = ("PEAK", "TIME", "ADDED", "SAVED", "RECOMPUTED")
        print_table(
            [Column(title, right=True) for title in titles],
            [
                [
                    bytes_text(each.peak), _ms(each.seconds), percent(each.added), bytes_text(each.saved),
                    str(each.recomputed),
                ]
                for each in found.curve
            ],
        )  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _as_data(target: str, found: Simulation) -> dict[str, Any]:
    return {
        "program": target,
        "world_size": found.world_size,
        "mesh": found.mesh,
        "rank": found.rank,
        "collectives": _rows(found),
        "bytes": found.bytes,
        "memory": asdict(found.memory) | {"peak": found.memory.peak},
        "times": asdict(found.times) | {"step": found.times.step},
        "hardware": found.hardware,
        "compile_seconds": found.compile_seconds,
        "curve": [asdict(each) for each in found.curve],
    }
