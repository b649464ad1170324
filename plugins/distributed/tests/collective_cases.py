"""Programs with each collective of PyTorch, compared with eager. Run by `test_collective_programs.py`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import UncacheableWarning

Program = Callable[[torch.Tensor], Any]

REDUCTIONS: Final = ("SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR")
_OF_BITS: Final = frozenset({"BAND", "BOR", "BXOR"})


def world() -> Any:
    return dist.group.WORLD


def other() -> int:
    return 1 - dist.get_rank()


def first() -> bool:
    return dist.get_rank() == 0


def groups() -> tuple[Any, ...]:
    """A group of both ranks, and one of each rank alone; created once, as all ranks take part."""
    if not _groups:
        _groups.extend([dist.new_group([0, 1]), *[dist.new_group([rank]) for rank in range(2)]])
    return tuple(_groups)


_groups: Final[list[Any]] = []


def all_reduce_by(name: str, x: torch.Tensor) -> torch.Tensor:
    y = x.long() if name in _OF_BITS else x * 2
    dist.all_reduce(y, op=getattr(dist.ReduceOp, name))
    return y + 1


def reduce_by(name: str, x: torch.Tensor) -> torch.Tensor:
    y = x.long() if name in _OF_BITS else x * 2
    dist.reduce(y, 1, op=getattr(dist.ReduceOp, name))
    return y + 1 if dist.get_rank() == 1 else x + 1  # PyTorch leaves the tensors of other ranks undefined


def reduce_scatter_by(name: str, x: torch.Tensor) -> torch.Tensor:
    part = torch.zeros(1, 3)
    dist.reduce_scatter_tensor(part, x * 2, op=getattr(dist.ReduceOp, name))
    return part + 1


def all_reduce_of_argument(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x.sin()


def all_reduce_of_view(x: torch.Tensor) -> Any:
    y = x * 2
    dist.all_reduce(y[0])
    dist.all_reduce(x[1])
    return y, x + 1


def all_reduce_of_transposed(x: torch.Tensor) -> Any:
    y = (x * 2).t().contiguous()
    dist.all_reduce(y)
    return y.t() + 1


def all_reduce_returns(x: torch.Tensor) -> Any:
    y = x * 2
    assert dist.all_reduce(y) is None
    work = dist.all_reduce(y, async_op=True)
    waited = work.wait()
    return y, waited, waited is True, work is not None


def result_read_before_wait_is_of_wait(x: torch.Tensor) -> Any:
    y = x * 2
    z = x.cos()
    work = dist.all_reduce(y, async_op=True)
    w = z @ z.t()
    work.wait()
    work.wait()
    return y + 1, w


def works_in_a_list(x: torch.Tensor) -> Any:
    parts = [x * (count + 1) for count in range(4)]
    works = [dist.all_reduce(part, async_op=True) for part in parts]
    for work in reversed(works):
        work.wait()
    return torch.stack(parts)


def works_in_two_groups(x: torch.Tensor) -> Any:
    both, *alone = groups()
    y, z, w = x * 2, x * 3, x * 4
    works = [dist.all_reduce(y, async_op=True), dist.all_reduce(z, group=both, async_op=True)]
    dist.all_reduce(w, group=alone[dist.get_rank()])
    for work in works:
        work.wait()
    return y, z, w


def not_in_the_group(x: torch.Tensor) -> Any:
    _, of_first, _ = groups()
    y = x * 2
    work = dist.all_reduce(y, group=of_first, async_op=True)
    if work is not None:
        work.wait()
    return y, work is None


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for count in range(4):
        y = x / (count + 2)
        dist.all_reduce(y)
        dist.broadcast(y, count % 2)
        x = x + y
    return x


def broadcast(x: torch.Tensor) -> Any:
    y = x * 2
    dist.broadcast(y, 1)
    dist.broadcast(x, src=0)
    return y


def broadcast_by_rank_of_group(x: torch.Tensor) -> Any:
    y = x * 2
    dist.broadcast(y, group=groups()[0], group_src=1)
    return y


def broadcast_of_several_dtypes(x: torch.Tensor) -> Any:
    values = [x.to(dtype) for dtype in (torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.bool)]
    for value in values:
        dist.broadcast(value, 1)
    return values


def all_gather(x: torch.Tensor) -> Any:
    parts = [torch.zeros_like(x) for _ in range(2)]
    assert dist.all_gather(parts, x * 2) is None
    return parts, torch.cat(parts).sum()


def all_gather_async(x: torch.Tensor) -> Any:
    parts = [torch.zeros_like(x) for _ in range(2)]
    work = dist.all_gather(parts, x * 2, async_op=True)
    y = x.exp()
    work.wait()
    return parts, y


def all_gather_into_tensor(x: torch.Tensor) -> Any:
    rows, others = torch.zeros(4, 3), torch.zeros(4, 3)
    dist.all_gather_into_tensor(rows, x * 2)
    work = dist.all_gather_into_tensor(others, x, async_op=True)
    work.wait()
    return rows, others


def all_gather_into_part_of_input(x: torch.Tensor) -> Any:
    whole = torch.zeros(4, 3)
    mine = whole[2 * dist.get_rank() : 2 * dist.get_rank() + 2]
    mine.copy_(x)
    dist.all_gather_into_tensor(whole, mine)
    return whole


def all_gather_coalesced(x: torch.Tensor) -> Any:
    lists = [[torch.zeros(2, 3), torch.zeros(3)] for _ in range(2)]
    dist.all_gather_coalesced(lists, [x * 2, x[0] * 3])
    return lists


def all_reduce_coalesced(x: torch.Tensor) -> Any:
    y, z = x * 2, x[0] * 3
    dist.all_reduce_coalesced([y, z])
    return y, z


def reduce_scatter(x: torch.Tensor) -> Any:
    part = torch.zeros(3)
    dist.reduce_scatter(part, [x[0] * 2, x[1] * 3])
    return part


def reduce_scatter_tensor(x: torch.Tensor) -> Any:
    part, another = torch.zeros(1, 3), torch.zeros(1, 3)
    dist.reduce_scatter_tensor(part, x * 2)
    work = dist.reduce_scatter_tensor(another, x, async_op=True)
    work.wait()
    return part, another


def all_to_all(x: torch.Tensor) -> Any:
    parts = [torch.zeros(3), torch.zeros(3)]
    dist.all_to_all(parts, [x[0] * 2, x[1] * 3])
    return parts


def all_to_all_single(x: torch.Tensor) -> Any:
    y = torch.zeros(2, 3)
    work = dist.all_to_all_single(y, x * 2, async_op=True)
    z = x.sin()
    work.wait()
    return y, z


def all_to_all_single_uneven(x: torch.Tensor) -> Any:
    rank = dist.get_rank()
    y, given = torch.zeros(4 - rank, 3), torch.cat([x, x[:1]]) if rank == 0 else torch.cat([x, x])
    sizes_out, sizes_in = ([1, 3], [1, 2]) if rank == 0 else ([2, 1], [3, 1])
    dist.all_to_all_single(y, given, sizes_out, sizes_in)
    return y


def gather(x: torch.Tensor) -> Any:
    parts = [torch.zeros(2, 3) for _ in range(2)] if first() else None
    dist.gather(x * 2, parts, dst=0)
    return parts


def scatter(x: torch.Tensor) -> Any:
    part = torch.zeros(2, 3)
    dist.scatter(part, [x * 2, x * 3] if first() else None, src=0)
    return part


def rooted_async(x: torch.Tensor) -> Any:
    parts = [torch.zeros(2, 3) for _ in range(2)] if first() else None
    part, y = torch.zeros(2, 3), x * 2
    works = [
        dist.gather(x * 2, parts, dst=0, async_op=True),
        dist.scatter(part, [x * 2, x * 3] if first() else None, src=0, async_op=True),
        dist.reduce(y, 0, async_op=True),
    ]
    for work in works:
        work.wait()
    return parts, part, y if first() else None


def barrier(x: torch.Tensor) -> Any:
    dist.barrier()
    work = dist.barrier(async_op=True)
    y = x + 1
    work.wait()
    return y


def monitored_barrier(x: torch.Tensor) -> Any:
    dist.monitored_barrier()
    return x + 1


def send_and_receive(x: torch.Tensor) -> Any:
    z = torch.zeros_like(x)
    if first():
        dist.send(x * 2, 1)
        source = dist.recv(z, 1)
    else:
        source = dist.recv(z, 0)
        dist.send(x * 2, 0)
    return z, source


def receive_into_argument(x: torch.Tensor) -> Any:
    if first():
        dist.send(x * 2, 1, tag=3)
        return None
    dist.recv(x[0:2], 0, tag=3)
    return x + 1


def at_once(x: torch.Tensor) -> Any:
    z = torch.zeros_like(x)
    works = [dist.isend(x * 2, other()), dist.irecv(z, other())]
    w = x.exp()
    for work in works:
        work.wait()
    return z, w


def batch(x: torch.Tensor) -> Any:
    z, w = torch.zeros_like(x), torch.zeros_like(x)
    operations = [
        dist.P2POp(dist.isend, x * 2, other(), tag=1),
        dist.P2POp(dist.irecv, z, other(), tag=1),
        dist.P2POp(dist.isend, x * 3, other(), tag=2),
        dist.P2POp(dist.irecv, w, other(), tag=2),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return z, w


def coalescing_manager(x: torch.Tensor) -> Any:
    y, z = x * 2, x * 3
    with dist._coalescing_manager():
        dist.all_reduce(y)
        dist.all_reduce(z)
    return y, z


def coalescing_manager_async(x: torch.Tensor) -> Any:
    y, z = x * 2, x * 3
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(y)
        dist.all_reduce(z)
    w = x.cos()
    manager.wait()
    return y, z, w


def coalesced_gathers(x: torch.Tensor) -> Any:
    y, z = torch.zeros(4, 3), torch.zeros(6)
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(y, x * 2)
        dist.all_gather_into_tensor(z, x[0] * 2)
    return y, z


def coalesced_reduce_scatters(x: torch.Tensor) -> Any:
    y, z = torch.zeros(1, 3), torch.zeros(1, 3)
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(y, x * 2)
        dist.reduce_scatter_tensor(z, x * 3)
    return y, z


def under_no_grad(x: torch.Tensor) -> Any:
    with torch.no_grad():
        total = x.square().sum()
        dist.all_reduce(total)
        total.sqrt_()
    return x / total


def in_inference_mode(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        dist.all_reduce(y)
        return y + 1


def in_a_checkpoint(x: torch.Tensor) -> Any:
    def block(y: torch.Tensor) -> torch.Tensor:
        total = y.detach().sum()
        dist.all_reduce(total)
        return (y * total).sin()

    return checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False)


def functional_in_a_checkpoint(x: torch.Tensor) -> Any:
    def block(y: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(y.sin(), "sum", world()).cos()

    return checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False)


def functional_all_reduce(x: torch.Tensor) -> Any:
    return functional.all_reduce(x.sin(), "sum", world()) * x


def functional_reductions(x: torch.Tensor) -> Any:
    y = x.detach()
    return [functional.all_reduce(y, name, world()) + 1 for name in ("sum", "avg", "product", "min", "max", "SUM")]


def functional_groups(x: torch.Tensor) -> Any:
    y = x.detach()
    both, *alone = groups()
    mesh = dist.init_device_mesh(torch.get_default_device().type, (2,))
    given = [both, both.group_name, [0, 1], mesh, (mesh, 0), alone[dist.get_rank()]]
    return [functional.all_reduce(y, "sum", group) + 1 for group in given]


def functional_broadcast(x: torch.Tensor) -> Any:
    return functional.broadcast(x.detach() * 2, 1, world()) + 1


def functional_all_gather(x: torch.Tensor) -> Any:
    return functional.all_gather_tensor(x.sin(), 0, world()) * 2, functional.all_gather_tensor(x, 1, world())


def functional_reduce_scatter(x: torch.Tensor) -> Any:
    y = torch.cat([x, x], dim=1)
    return functional.reduce_scatter_tensor(y.sin(), "sum", 0, world()), functional.reduce_scatter_tensor(
        y, "sum", 1, world()
    )


def functional_all_to_all(x: torch.Tensor) -> Any:
    return functional.all_to_all_single(x.sin(), None, None, world()) * 2, functional.all_to_all_single(
        x, [1, 1], [1, 1], world()
    )


def functional_autograd(x: torch.Tensor) -> Any:
    gathered = functional.all_gather_tensor_autograd(x.sin(), 0, world())
    reduced = functional.reduce_scatter_tensor_autograd(gathered * 2, "sum", 0, world())
    return functional.all_to_all_single_autograd(reduced * 3, [1, 1], [1, 1], world())


def functional_coalesced(x: torch.Tensor) -> Any:
    reduced = functional.all_reduce_coalesced([x * 2, x[0] * 3], "sum", world())
    gathered = functional.all_gather_into_tensor_coalesced([x * 2, x[0] * 3], world())
    scattered = functional.reduce_scatter_tensor_coalesced([x * 2, x.t() * 3], "sum", [0, 1], world())
    return [value + 1 for value in (*reduced, *gathered, *scattered)]


def functional_permute(x: torch.Tensor) -> Any:
    return functional.permute_tensor(x.detach()[0] * 2, [1, 0], world()) + 1


def functional_inplace(x: torch.Tensor) -> Any:
    y, whole, part, parts = x.detach() * 2, torch.zeros(4, 3), torch.zeros(1, 3), [torch.zeros(2, 3) for _ in range(2)]
    functional.all_reduce_inplace(y)
    functional.all_gather_tensor_inplace(whole, x.detach())
    functional.reduce_scatter_tensor_inplace(part, x.detach())
    functional.all_gather_inplace(parts, x.detach())
    z = torch.zeros(2, 3)
    functional.all_to_all_inplace(z, x.detach())
    return y, whole, part, parts, z


def functional_twice(x: torch.Tensor) -> Any:
    y = functional.all_reduce(x.sin(), "sum", world())
    z = functional.all_reduce(y * y, "sum", world())
    unused = functional.all_reduce(x.cos(), "sum", world())
    assert unused.shape == x.shape
    return (y + z).sum()


def functional_in_a_loop(x: torch.Tensor) -> Any:
    for _ in range(3):
        x = functional.all_reduce(x.sin(), "sum", world()) + x
    return x


def functional_of_one_rank(x: torch.Tensor) -> Any:
    return functional.all_reduce(x.sin(), "sum", groups()[1 + dist.get_rank()]) * 2


def wait_tensor(x: torch.Tensor) -> Any:
    y = functional.all_reduce(x.sin(), "sum", world())
    return functional.wait_tensor(y) + functional.wait_tensor(x * 2)


def gradient_inside(x: torch.Tensor) -> Any:
    w = x.detach().requires_grad_()
    loss = functional.all_reduce((w * w).sum(), "sum", world())
    (gradient,) = torch.autograd.grad(loss, w)
    dist.all_reduce(gradient)
    return gradient


class _Reduced(torch.autograd.Function):
    """As users write it for tensor parallelism: the sum forward, the identity backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class _Copied(torch.autograd.Function):
    """The identity forward, the sum backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def autograd_functions(x: torch.Tensor) -> Any:
    for _ in range(2):
        x = _Reduced.apply(_Copied.apply(x).sin())
    return x


def training_step(x: torch.Tensor) -> Any:
    """Gradients that the program itself averages, as users write it."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    layer(x.detach()).square().sum().backward()
    works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in layer.parameters()]
    for work in works:
        work.wait()
    return [parameter.grad / 2 for parameter in layer.parameters()]


def all_gather_object(x: torch.Tensor) -> Any:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, {"rank": dist.get_rank(), "mean": x.mean(), "name": "x", "sizes": x.shape})
    return found


def gather_object(x: torch.Tensor) -> Any:
    found: list[Any] | None = [None, None] if first() else None
    dist.gather_object((x * 2, x.shape[0]), found, dst=0)
    return found


def objects_of_lists(x: torch.Tensor) -> Any:
    shared: list[Any] = [x * 2, "text", 3] if first() else [1, 1, 1]
    dist.broadcast_object_list(shared, src=0)
    part: list[Any] = [0, 1]
    dist.scatter_object_list(part, [x + 1, [x + 2]] if first() else None, src=0)
    return shared, part


def objects_point_to_point(x: torch.Tensor) -> Any:
    found: list[Any] = [0]
    if first():
        dist.send_object_list([{"x": x * 2}], dst=1)
        return None
    return dist.recv_object_list(found, src=0), found


def objects_among_collectives(x: torch.Tensor) -> Any:
    found: list[Any] = [None, None]
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    dist.all_gather_object(found, float(dist.get_rank()), group=groups()[0])
    dist.all_reduce(y)
    return y, found


def objects_outside_of_the_group(x: torch.Tensor) -> Any:
    found: list[Any] = [5]
    dist.all_gather_object(found, "one", group=groups()[1])
    return found, x + 1


class _Metrics:
    def __init__(self) -> None:
        self.values: list[Any] = [None, None]
        self.step = 0


_metrics: Final = _Metrics()


def objects_in_attributes(x: torch.Tensor) -> Any:
    _metrics.step += 1
    dist.all_gather_object(_metrics.values, {"step": _metrics.step})
    return x + 1


def compare_attributes() -> None:
    """What a compiled program receives is in the user's objects after the call, with what changes between calls."""
    for program in (objects_in_attributes, thunder.jit(objects_in_attributes)):
        _metrics.step = 0
        for step in range(1, 4):
            program(torch.ones(2))
            assert _metrics.values == [{"step": step}] * 2, _metrics.values


_sent: Final[dict[str, Any]] = {}


def objects_of_the_user(x: torch.Tensor) -> Any:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, _sent)
    return found


def compare_sent() -> None:
    """A program sends what the user's containers hold at the call."""
    for program in (objects_of_the_user, thunder.jit(objects_of_the_user)):
        _sent.clear()
        for step in range(3):
            _sent["nested"] = {"step": [step, "text"]}
            assert program(torch.ones(2)) == [{"nested": {"step": [step, "text"]}}] * 2


def exchanged(value: Any) -> Any:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, value)
    return found[0]


def read_by_type(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if type(exchanged(1)) is int else x - 1


def read_by_identity(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if exchanged(True) is True else x - 1


def read_by_call(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if callable(exchanged(1)) else x - 1


def read_by_pytree(x: torch.Tensor) -> list[Any]:
    return tree_leaves(exchanged([1, 2]))


def read_by_one_rank(x: torch.Tensor) -> torch.Tensor:
    """The rank that sends the object, and compiles, finds that the other one runs the call eagerly."""
    shared: list[Any] = [{"scale": 3.0, "add": x}] if first() else [None]
    dist.broadcast_object_list(shared, src=0)
    y = x * shared[0]["scale"] + shared[0]["add"].to(x.device)  # with NCCL it is on the GPU of the sender
    dist.all_reduce(y)
    return y


def compare_reads() -> None:
    """A program that reads received objects, by a method of theirs or without, runs eagerly on all ranks."""
    for program in (read_by_one_rank, read_by_type, read_by_identity, read_by_call, read_by_pytree):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is run by eager PyTorch on all ranks", UncacheableWarning)
            compare(program)
        compare(in_a_loop)  # programs that are compiled later are compared as before


DIFFERENTIABLE: Final[tuple[Program, ...]] = (
    *(under_no_grad, in_a_checkpoint, functional_in_a_checkpoint, functional_all_reduce, functional_all_gather),
    *(functional_reduce_scatter, functional_all_to_all, functional_autograd, functional_coalesced, functional_twice),
    *(functional_in_a_loop, functional_of_one_rank, wait_tensor, autograd_functions),
)
NOT_DIFFERENTIABLE: Final[tuple[Program, ...]] = (
    *(all_reduce_of_argument, all_reduce_of_view, all_reduce_of_transposed, all_reduce_returns),
    *(result_read_before_wait_is_of_wait, works_in_a_list, works_in_two_groups, not_in_the_group, in_a_loop),
    *(broadcast, broadcast_by_rank_of_group, broadcast_of_several_dtypes, all_gather, all_gather_async),
    *(all_gather_into_tensor, all_gather_into_part_of_input, all_gather_coalesced),
    *(all_reduce_coalesced, reduce_scatter, reduce_scatter_tensor, all_to_all, all_to_all_single),
    *(all_to_all_single_uneven, gather, scatter, rooted_async, barrier, monitored_barrier, send_and_receive),
    *(receive_into_argument, at_once, batch, coalescing_manager, coalescing_manager_async),
    *(coalesced_gathers, coalesced_reduce_scatters, in_inference_mode, functional_reductions, functional_groups),
    *(functional_broadcast, functional_permute, functional_inplace, gradient_inside, training_step),
    *(all_gather_object, gather_object, objects_of_lists, objects_point_to_point, objects_among_collectives),
    *(objects_outside_of_the_group,),
)


def _input(count: int, *, gradient: bool) -> torch.Tensor:
    return (torch.arange(6.0).reshape(2, 3) / 4 + dist.get_rank() + count / 8).requires_grad_(gradient)


def _run(program: Program, *, gradient: bool) -> list[Any]:
    """Results, inputs after the calls, and gradients, of three calls; the exception of eager where that raises one."""
    results: list[Any] = []
    for count in range(3):
        x = _input(count, gradient=gradient)
        result = program(x)
        results += [result, x.detach()]
        losses = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if gradient and losses:
            loss = sum([(leaf * (place + 1)).cos().sum() for place, leaf in enumerate(losses)])
            loss.backward()  # type: ignore[union-attr]
            results.append(x.grad)
    return results


def compare(program: Program, *, gradient: bool = False) -> None:
    """The compiled program gives what eager PyTorch does, to the bit but for rounding of gradients."""
    expected = _run(program, gradient=gradient)
    found = _run(thunder.jit(program), gradient=gradient)
    theirs, ours = tree_leaves(expected), tree_leaves(found)
    assert len(theirs) == len(ours), (theirs, ours)
    for one, another in zip(theirs, ours, strict=True):
        if isinstance(one, torch.Tensor):
            assert isinstance(another, torch.Tensor), another
            # gradients that several lines add are added in another order
            tolerance = 1e-6 if gradient else 0
            torch.testing.assert_close(_plain(another), _plain(one), rtol=tolerance, atol=tolerance)
            assert one.requires_grad == another.requires_grad
        else:
            assert one == another, (one, another)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.wait() if isinstance(tensor, functional.AsyncCollectiveTensor) else tensor).detach()


CASES: Final[dict[str, Callable[[], None]]] = {
    **{program.__name__: partial(compare, program) for program in NOT_DIFFERENTIABLE},
    "objects_in_attributes": compare_attributes,
    "objects_of_the_user": compare_sent,
    "objects_that_are_read": compare_reads,
    **{program.__name__: partial(compare, program) for program in DIFFERENTIABLE},
    **{f"{program.__name__}_with_gradients": partial(compare, program, gradient=True) for program in DIFFERENTIABLE},
    **{
        f"{program.__name__}_{name}": partial(compare, partial(program, name))
        for program in (all_reduce_by, reduce_by, reduce_scatter_by)
        for name in REDUCTIONS
        if program is not reduce_scatter_by or name not in _OF_BITS
    },
}

OF_GLOO: Final = frozenset(
    {
        *("all_gather_coalesced", "monitored_barrier"),
        "at_once",  # NCCL may wait for the receiver in the first of two calls, with which both ranks send
        *(f"{program.__name__}_{name}" for program in (all_reduce_by, reduce_by) for name in _OF_BITS),
    }
)
"""Cases of what NCCL does not have."""
