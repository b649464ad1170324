"""Capture of a program: binding of its inputs, selection of the memory pool, and description of its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from thunder_plugin_cudagraphs.backend import Layout
from thunder_plugin_cudagraphs.buffers import Buffers
from thunder_plugin_cudagraphs.errors import CannotBeCaptured
from thunder_plugin_cudagraphs.graph import Bound, Graph, SavedMemory
from thunder_plugin_cudagraphs.inputs import Role
from thunder_plugin_cudagraphs.memory import Footprint, Pool
from thunder_plugin_cudagraphs.outputs import Argument, Outputs
from thunder_plugin_cudagraphs.pytorch_internals import unsafe_preserve_version_counter

if TYPE_CHECKING:
    from thunder_plugin_cudagraphs.program import GraphedProgram

NO_FORWARD = "forward ran without a graph"


@dataclass(slots=True)
class Attempt:
    """One call to capture: its inputs, and their key."""

    values: list[Any]
    key: tuple[Any, ...]


def capture(program: GraphedProgram, attempt: Attempt) -> Sequence[Any] | None:
    """Capture the program and run it once; None, with the values as they were, if that is not possible.

    The memory of saved tensors is freed when their last reader is captured, as without a graph: the capture takes
    over the tensors that own it, and no other tensor may share it.
    """
    values = attempt.values
    saved = _saved_memories(program, values)
    if saved is None:
        return program.without(NO_FORWARD)
    limit = int(program.limits.memory * program.device.backend.free_bytes())
    if program.nbytes > limit:
        program.refused = f"its graph would take about {_mib(program.nbytes)}, {_beyond(program, limit)}"
        return program.without(program.refused)
    while len(program.graphs) >= program.limits.variants:
        program.device.drop(min(program.graphs, key=lambda graph: graph.last_used))
    program.device.make_room(program.limits.max_graphs)
    program.captures += 1
    try:
        pool = _pool(program, saved)
        program.device.backend.order()
        bound, arguments, where = _bind(program, attempt, saved)
    except Exception as error:  # noqa: BLE001 - as below; nothing of the call has been changed
        return _failed(program, error)
    originals = values.copy()
    for memory in saved:
        for position, _ in memory.members:
            originals[position] = None
    values.clear()
    for memory in saved:
        held = memory.pool.find(memory.start)
        if held is None or held.expired:  # otherwise it is needed after this backward
            memory.pool.disown(memory.start)
    try:
        graph, outputs = _captured(program, pool, bound, arguments, where, originals, limit)
    except Exception as error:  # noqa: BLE001 - the program runs without a graph, and the reason is recorded
        values.extend(originals)
        for memory in saved:
            memory.restore(values, program.device.backend)
        return _failed(program, error)
    program.graphs.insert(0, graph)
    program.device.add(graph)
    return program.run(graph, originals, outputs)


def _failed(program: GraphedProgram, error: Exception) -> Sequence[Any] | None:
    """The program runs without a graph from now on."""
    program.refused = f"its capture failed: {type(error).__name__}: {_first_line(error)}"
    program.device.release()
    return program.without(program.refused)


def _saved_memories(program: GraphedProgram, values: Sequence[Any]) -> list[SavedMemory] | None:
    """The memory of the values that forward saved; None if it is not memory of a graph."""
    memories: dict[int, SavedMemory] = {}
    for position, role in enumerate(program.inputs.roles):
        value = values[position]
        if role is not Role.SAVED or not value.numel():
            continue
        start = value.untyped_storage().data_ptr()
        memory = memories.get(start)
        if memory is None:
            known = program.device.find(start)
            if known is None:
                return None
            pool, held = known
            memory = memories[start] = SavedMemory(pool, held.start, held.end, held.group)
        memory.members.append((position, Layout.of(value)))
    return list(memories.values())


def _pool(program: GraphedProgram, saved: Sequence[SavedMemory]) -> Pool:
    """The pool to allocate from: by default the shared one, so that the total is small.

    If results are in use whose memory the allocator considers free, the capture could reuse that memory. Results that
    are in use now are likely to be in use at replays, too, so waiting would not help: the capture gets a separate pool.
    """
    device = program.device
    device.release()
    pools = list({id(memory.pool): memory.pool for memory in saved}.values())
    first = pools if len(pools) == 1 else []
    free = (pool for pool in (*first, *device.pools) if not pool.unowned())
    return next(free, None) or device.new_pool()


def _bind(
    program: GraphedProgram, attempt: Attempt, saved: Sequence[SavedMemory]
) -> tuple[Bound, list[Any], dict[int, Argument]]:
    """The inputs of the graph: those read in place, those that are copied, and the arguments of the captured call."""
    backend, values = program.device.backend, attempt.values
    arguments = list(values)
    addresses: list[int | None] = [None] * len(values)
    buffers = Buffers()
    where: dict[int, Argument] = {}
    constants = []
    for position, role in enumerate(program.inputs.roles):
        value = values[position]
        if role is Role.OBJECT:
            constants.append(value)
            continue
        if role is Role.UNUSED:
            continue
        if role is Role.COPIED and type(value) is not torch.nn.Parameter:
            arguments[position] = buffers.add(position, value)
        else:
            addresses[position] = value.data_ptr()
        if role is not Role.SAVED and value.numel():
            argument = arguments[position]
            where.setdefault(argument.untyped_storage().data_ptr(), (position, Layout.of(argument)))
    for memory in saved:
        owner = memory.pool.owner(memory.start)
        if owner is not None:
            storage = owner.untyped_storage()
            for position, layout in memory.members:
                arguments[position] = backend.tensor(storage, layout)
    fixed = [position for position, address in enumerate(addresses) if address is not None]
    buffers.fill(values)
    return Bound(attempt.key, fixed, addresses, buffers, list(saved), constants), arguments, where


def _captured(
    program: GraphedProgram,
    pool: Pool,
    bound: Bound,
    arguments: list[Any],
    where: dict[int, Argument],
    originals: list[Any],
    limit: int,
) -> tuple[Graph, Sequence[Any]]:
    backend = program.device.backend
    before = backend.pool_bytes(pool.handle)
    written = tuple(
        [originals[position] for position in program.inputs.mutated if not originals[position].is_inference()]
    )
    with torch.no_grad(), unsafe_preserve_version_counter(written):  # before anything is written
        captured = backend.capture(pool.handle, program.function, arguments, program.inputs.generators(originals))
    taken = backend.pool_bytes(pool.handle) - before
    if taken > limit:
        raise CannotBeCaptured(f"it takes {_mib(taken)}, {_beyond(program, limit)}")
    held = {one.start: one.end for one in pool.alive()}
    footprint = Footprint(captured.segments, held)
    outputs = Outputs.of(
        captured.outputs,
        where,
        footprint.contains,
        program.saved,
        program.limits.copy_below,
        program.requiring,
    )
    outputs.own(captured.outputs, pool)
    return Graph(program, bound, pool, outputs, footprint, captured.replay), captured.outputs


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.0f} MiB"


def _beyond(program: GraphedProgram, limit: int) -> str:
    return f"and the option memory ({program.limits.memory:g}) allows {_mib(limit)}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
