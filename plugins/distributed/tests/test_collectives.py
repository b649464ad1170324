"""Communication inside of programs: between two processes, and the lines of traces with a fake process group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import DataDependentError, UnsupportedError
from thunder_core.ir.effects import WAITS, Effects
from thunder_core.passes.dependencies import dependencies
from thunder_testing.processes import process_suite


def other() -> int:
    return 1 - dist.get_rank()


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def all_reduce_of_argument(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return x + 1


def all_reduce_async(x: torch.Tensor) -> Any:
    y, view = x * 2, x[0]
    work = dist.all_reduce(x, async_op=True)
    z = y.sin()
    assert work.wait()
    return x + z, view + 1


def never_waited(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y, async_op=True)
    return x + 1


def barrier(x: torch.Tensor) -> torch.Tensor:
    dist.barrier()
    return x + 1


def send_and_receive(x: torch.Tensor) -> torch.Tensor:
    y, z = x * 2, torch.zeros_like(x)
    if dist.get_rank():
        dist.recv(z, 0)
        dist.send(y, 0)
    else:
        dist.send(y, 1)
        dist.recv(z, 1)
    return z


def at_once(x: torch.Tensor) -> torch.Tensor:
    y, z = x * 2, torch.zeros_like(x)
    works = [dist.isend(y, other()), dist.irecv(z, other())]
    w = y.exp() * 0
    for work in works:
        work.wait()
    return z + w


def batch(x: torch.Tensor) -> torch.Tensor:
    y, z = x * 2, torch.zeros_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, y, other()), dist.P2POp(dist.irecv, z, other())]):
        work.wait()
    return z


def reduce_scatter_async(x: torch.Tensor) -> torch.Tensor:
    z = torch.zeros(1, 3)
    dist.reduce_scatter_tensor(z, x * 2, async_op=True).wait()
    return z


def gathers(x: torch.Tensor) -> Any:
    whole, parts = torch.zeros(4, 3), [torch.zeros(2, 3) for _ in range(2)]
    dist.all_gather_into_tensor(whole, x * 2)
    dist.all_gather(parts, x)
    return whole, parts


def rooted(x: torch.Tensor) -> Any:
    first = dist.get_rank() == 0
    y, z, parts = x * 3, torch.zeros(2, 3), [torch.zeros(2, 3) for _ in range(2)] if first else None
    dist.broadcast(y, 1)
    dist.scatter(z, [x * 2, x * 3] if first else None, 0)
    dist.gather(x, parts, 0)
    return y, z, parts


def exchange(x: torch.Tensor) -> torch.Tensor:
    z = torch.zeros(2, 3)
    dist.all_to_all_single(z, x * 2)
    return z


def functional_and_unused(x: torch.Tensor) -> torch.Tensor:
    functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
    return functional.all_reduce(x, "sum", dist.group.WORLD) + functional.all_reduce(x, "sum", dist.group.WORLD)


def under_gradients(x: torch.Tensor) -> torch.Tensor:
    w = x.detach().requires_grad_()
    loss = (w * w).sum()
    total = loss.detach().clone()
    dist.all_reduce(total)
    (gradient,) = torch.autograd.grad(loss, w)
    dist.all_reduce(gradient)
    return gradient + total


PROGRAMS = (
    *(all_reduce, all_reduce_of_argument, all_reduce_async, never_waited, barrier, send_and_receive, at_once, batch),
    *(reduce_scatter_async, gathers, rooted, exchange, functional_and_unused, under_gradients),
)


def run(program: Callable[..., Any]) -> list[Any]:
    results = []
    for count in range(3):
        x = torch.arange(6.0).reshape(2, 3) + 10 * dist.get_rank() + count
        results.append((program(x), x))
    return results


def compare(program: Callable[..., Any]) -> None:
    expected, found = run(program), run(thunder.jit(program))
    for theirs, ours in zip(tree_leaves(expected), tree_leaves(found), strict=True):
        if isinstance(ours, torch.Tensor):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


CASES = {program.__name__: partial(compare, program) for program in PROGRAMS}


test_two_processes = pytest.mark.slow(process_suite(__name__, CASES, of_gloo=("at_once",)))


def exchange_at_once(x: torch.Tensor) -> torch.Tensor:
    """As `batch_isend_irecv` calls them for NCCL, which sends and receives at the same time."""
    received = torch.zeros_like(x)
    with dist._coalescing_manager(device=x.device, async_ops=True) as manager:
        dist.isend(x * 2, 1)
        dist.irecv(received, 1)
    for work in manager.works:
        work.wait()
    return received + 1


@pytest.mark.usefixtures("fake_group")
def test_coalesced_calls_are_one_op() -> None:
    compiled = thunder.jit(exchange_at_once, executors=[])
    assert torch.equal(compiled(torch.ones(3)), exchange_at_once(torch.ones(3)))
    names = [line.symbol.name.rpartition(".")[2] for line in thunder.last_traces(compiled)[-1].symbols]
    assert names == ["zeros_like", "mul", "start_together", "receive", "copy_", "add"]
    found = thunder.explain(compiled).entries[-1].collectives
    assert [(each.kind, each.bytes) for each in found] == [("send", 12), ("recv", 0)]


@pytest.mark.usefixtures("fake_group")
def test_a_handle_inside_of_a_coalescing_manager_cannot_be_waited_for() -> None:
    def program(x: torch.Tensor) -> None:
        with dist._coalescing_manager(device=x.device):
            dist.isend(x, 1).wait()

    with pytest.raises(UnsupportedError, match=r"wait\(\) of the handle of a communication inside of a coalescing"):
        thunder.jit(program)(torch.ones(3))


def lines(program: Callable[..., Any]) -> list[str]:
    compiled = thunder.jit(program)
    compiled(torch.ones(2, 3))
    return [line.symbol.name.rpartition("recording.")[2] for line in thunder.last_traces(compiled)[-1].symbols]


@pytest.mark.usefixtures("fake_group")
def test_ops_are_in_order_and_stay() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        first = dist.all_reduce(x * 2, async_op=True)
        dist.barrier()
        second = dist.isend(x, 1)
        second.wait()
        first.wait()
        first.wait()
        return x + 1

    names = [name for name in lines(program) if name.startswith("operations.")]
    assert names == [f"operations.{name}" for name in ("start", "start", "wait", "start", "wait", "receive")]


@pytest.mark.usefixtures("fake_group")
def test_functional_collectives_are_neither_merged_nor_removed() -> None:
    assert sum("all_reduce" in name for name in lines(functional_and_unused)) == 4


def in_two_groups(x: torch.Tensor) -> torch.Tensor:
    first = torch.ops._c10d_functional.all_reduce(x * 2, "sum", "0")
    second = torch.ops._c10d_functional.all_reduce(x * 3, "sum", "1")
    noise = torch.rand(2, 3)
    wait = torch.ops._c10d_functional.wait_tensor
    return wait(first) + wait(second) + noise


@pytest.mark.usefixtures("fake_group")
def test_a_collective_has_the_channel_of_its_process_group_and_a_wait_that_of_waits() -> None:
    dist.new_group([0, 1])
    compiled = thunder.jit(in_two_groups, executors=[])
    compiled(torch.ones(2, 3))
    trace = thunder.last_traces(compiled)[-1]
    found = [line.effects.channels for line in trace.symbols if line.effects.channels]
    assert found == [("0",), ("1",), (WAITS,), (WAITS,)]
    assert not any(line.effects.external for line in trace.symbols)
    text = str(trace)
    assert "; group '0'\n" in text
    assert "; waits\n" in text


@pytest.mark.usefixtures("fake_group")
def test_collectives_follow_those_of_their_group_alone() -> None:
    dist.new_group([0, 1])
    compiled = thunder.jit(in_two_groups, executors=[])
    compiled(torch.ones(2, 3))
    lines = thunder.last_traces(compiled)[-1].symbols
    effects = {index for index, line in enumerate(lines) if not line.effects.pure}
    names = {index: line.symbol.name for index, line in enumerate(lines)}
    before = dependencies(lines)
    reduces = [index for index in effects if names[index].endswith("all_reduce")]
    assert all(effects.isdisjoint(before[index]) for index in reduces)
    (draw,) = [index for index in effects if names[index].endswith("rand")]
    assert effects.isdisjoint(before[draw])


@pytest.mark.usefixtures("fake_group")
def test_a_saved_trace_has_the_channels(tmp_path: Any) -> None:
    dist.new_group([0, 1])
    compiled = thunder.jit(in_two_groups, executors=[])
    compiled(torch.ones(2, 3))
    trace = thunder.last_traces(compiled)[-1]
    thunder.save_trace(compiled, tmp_path / "trace.py")
    read = thunder.load_trace(tmp_path / "trace.py").trace
    assert [line.effects for line in read.symbols] == [line.effects for line in trace.symbols]


@pytest.mark.usefixtures("fake_group")
def test_start_and_wait_of_a_collective_in_place_have_channels() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y

    compiled = thunder.jit(program, executors=[])
    compiled(torch.ones(2, 3))
    effects = [line.effects for line in thunder.last_traces(compiled)[0].symbols if line.effects.channels]
    assert effects == [Effects(channels=("0",)), Effects(channels=(WAITS,))]


@pytest.mark.usefixtures("fake_group")
def test_the_report_tells_what_each_line_sends_and_what_stands_before_its_wait() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        first = torch.ops._c10d_functional.all_gather_into_tensor(x * 2, 2, "0")
        product = x @ x.t()
        return torch.ops._c10d_functional.wait_tensor(first).sum() + product

    compiled = thunder.jit(program, executors=[])
    compiled(torch.ones(2, 3))
    report = thunder.explain(compiled)
    (found,) = report.entries[-1].collectives
    assert (found.phase, found.kind, found.group, found.ranks) == ("inference", "all_gather", "0", 2)
    assert (found.bytes, found.lines, found.flops) == (2 * 3 * 4, 1, 2 * 2 * 2 * 3)
    assert "all_gather of 1 tensor" in str(report.collectives)
    assert "24 bytes  1 operation (24 FLOP) before the wait" in str(report.collectives)


@pytest.mark.usefixtures("fake_group")
def test_the_report_tells_of_a_collective_in_a_branch() -> None:
    compiled = thunder.jit(in_a_branch, executors=[])
    compiled(torch.ones(2, 3))
    (found,) = thunder.explain(compiled).entries[-1].collectives
    assert (found.kind, found.bytes) == ("all_reduce", 2 * 3 * 4)


def test_a_program_without_collectives_reports_none() -> None:
    compiled = thunder.jit(torch.sin)
    compiled(torch.ones(2, 3))
    assert thunder.explain(compiled).entries[-1].collectives == ()
    assert not thunder.explain(compiled).collectives


def in_a_branch(x: torch.Tensor) -> torch.Tensor:
    def reduced(y: torch.Tensor) -> torch.Tensor:
        z = y * 2
        dist.all_reduce(z)
        return z

    return torch.cond(x.sum() > 0, reduced, lambda y: y - 1, (x,))


@pytest.mark.usefixtures("fake_group")
def test_a_branch_of_cond_keeps_the_effects_of_what_it_does() -> None:
    compiled = thunder.jit(in_a_branch, executors=[])
    assert torch.equal(compiled(torch.ones(2, 3)), torch.full((2, 3), 2.0))  # the fake group adds nothing
    (line,) = [line for line in thunder.last_traces(compiled)[-1].symbols if line.symbol.name.endswith("cond")]
    assert line.effects == Effects(channels=("0", WAITS))


@pytest.mark.usefixtures("fake_group")
def test_a_branch_of_cond_whose_result_nobody_reads_still_communicates() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        in_a_branch(x)
        return x + 1

    compiled = thunder.jit(program, executors=[])
    compiled(torch.ones(2, 3))
    assert any(line.symbol.name.endswith("cond") for line in thunder.last_traces(compiled)[-1].symbols)


@pytest.mark.usefixtures("fake_group")
def test_a_checkpoint_region_has_the_channels_of_its_ops() -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x.sin(), "sum", "0"))

    compiled = thunder.jit(lambda x: checkpoint(block, x, use_reentrant=False), executors=[])
    compiled(torch.ones(2, 3))
    (line,) = [line for line in thunder.last_traces(compiled)[0].symbols if not line.effects.pure]
    assert line.effects == Effects(channels=("0", WAITS))


@pytest.mark.usefixtures("fake_group")
def test_gradients_through_the_ops_around() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        total = x.detach().sum()
        dist.all_reduce(total)
        return (x.sin() * total).sum()

    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    program(x).backward()
    thunder.jit(program)(y).backward()
    assert torch.equal(x.grad, y.grad)


def received_object() -> Any:
    found: list[Any] = [None]
    dist.recv_object_list(found, src=0)
    return found[0]


@pytest.mark.usefixtures("fake_group")
@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda x: dist.all_reduce(x, async_op=True).is_completed(), r"is_completed\(\) of the handle"),
        (lambda x: dist.all_reduce(x, async_op=True).get_future(), r"get_future\(\) of the handle"),
        (lambda x: dist.all_gather_object([None, None], object()), "all_gather_object inside .* an object of object"),
        (lambda x: dist.all_gather_object([None, None], x.requires_grad_()), "a tensor that requires grad"),
        (lambda x: dist.recv(x), "recv from any rank inside a compiled function"),
        (lambda x: received_object() + 1, "the program reads an object that recv_object_list received"),
        (lambda x: dist.recv_object_list([1]), "recv_object_list inside a compiled function receives from any rank"),
        (lambda x: dist.destroy_process_group(), "destroy_process_group inside a compiled function"),
    ],
)
def test_refusals(program: Callable[..., Any], match: str) -> None:
    with pytest.raises((UnsupportedError, DataDependentError), match=match):
        thunder.jit(program)(torch.ones(2, 3))


@pytest.mark.usefixtures("fake_group")
def test_a_collective_of_objects_is_a_line_in_the_channel_of_its_group() -> None:
    def program(x: torch.Tensor) -> Any:
        found: list[Any] = [None, None]
        dist.all_reduce(x)
        dist.all_gather_object(found, (x.sum(), "text"))
        return found

    compiled = thunder.jit(program, executors=[])
    compiled(torch.ones(2, 3))
    effects = [line.effects for line in thunder.last_traces(compiled)[-1].symbols if line.effects.channels]
    assert effects == [Effects(channels=("0",)), Effects(channels=(WAITS,)), Effects(channels=("0",))]
    kinds = [each.kind for each in thunder.explain(compiled).entries[-1].collectives]
    assert kinds == ["all_reduce", "all_gather_object"]


def sent(x: torch.Tensor) -> torch.Tensor:
    work = dist.isend(x * 2, 1)
    work.wait()
    return x.exp()


def gathered(x: torch.Tensor) -> Any:
    parts = [torch.zeros(2, 3) for _ in range(2)]
    dist.all_gather(parts, x * 2, async_op=True).wait()
    return parts


@pytest.mark.usefixtures("fake_group")
@pytest.mark.parametrize("program", [sent, gathered])
def test_a_wait_reads_what_is_sent_so_that_its_memory_is_not_used_earlier(program: Callable[..., Any]) -> None:
    compiled = thunder.jit(program, executors=[])
    compiled(torch.ones(2, 3))
    found = thunder.last_traces(compiled)[-1].symbols
    (product,) = [line.output for line in found if line.symbol.name == "torch.mul"]
    waits = [line for line in found if WAITS in line.effects.channels]
    assert waits
    assert all(product in line.inputs() for line in waits)
