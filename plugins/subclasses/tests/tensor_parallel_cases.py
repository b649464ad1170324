"""Functions of DTensors in several processes: values, classes, placements and gradients, against eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from packaging.version import Version
from tensor_parallel_models import MODELS, assert_same, whole
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, zeros
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import loss_parallel
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import UnsupportedError
from thunder_testing.processes import ON_GPUS

WHOLE, ROWS = Replicate(), Shard(0)


def mesh() -> Any:
    return _meshes(dist.group.WORLD)[0]


def grid() -> Any:
    return _meshes(dist.group.WORLD)[1]


@cache
def _meshes(world: Any) -> tuple[Any, Any]:
    """All ranks of the default group, in one dimension and in two; suites with other groups run in this process."""
    device = torch.get_default_device().type
    line = init_device_mesh(device, (world.size(),), mesh_dim_names=("tp",))
    return line["tp"], init_device_mesh(device, (1, world.size()), mesh_dim_names=("rows", "columns"))


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").to(torch.get_default_device())


def distributed(*shape: int, place: Any = ROWS, seed: int = 0) -> Tensor:
    return distribute_tensor(numbers(*shape, seed=seed), mesh(), [place]).requires_grad_()


def local(*shape: int) -> Tensor:
    return numbers(*shape, seed=dist.get_rank()).requires_grad_()


def from_local(x: Tensor, place: Any) -> Any:
    return DTensor.from_local(x, mesh(), [place])


def _matmul(*places: Any) -> tuple[Callable[..., Any], Callable[[], Any]]:
    return lambda x, y: (x @ y).sin(), lambda: [distributed(4, 4, place=p, seed=i) for i, p in enumerate(places)]


def _uses(x: Any, w: Any) -> Any:
    """Its gradient is of partial sums from one of the uses, and replicated from the others."""
    hidden = x.sin()
    return F.linear(hidden, w).redistribute(placements=[WHOLE]).square(), hidden.cos(), hidden


def _reductions(x: Any) -> Any:
    hidden = x.sin()
    return hidden.sum(), hidden.mean(0), hidden.cos(), x.sum()


def _under_autocast(x: Any, w: Any) -> Any:
    with torch.autocast(torch.get_default_device().type, torch.bfloat16):
        return F.linear(x, w).relu()


def _rows_of_an_embedding(w: Any) -> Any:
    return F.embedding(from_local(torch.tensor([0, 3, 1]), WHOLE), w).redistribute(placements=[WHOLE]).sin()


def _hooked() -> Any:
    x = distributed(4, 4)
    x.register_hook(lambda gradient: gradient * 3)
    return (x,)


def _linear() -> Any:
    return distributed(4, 4, place=WHOLE), distributed(6, 4, seed=1)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "from_local and to_local": (lambda x: from_local(x, Shard(0)).sin().to_local() * 2, lambda: (local(2, 3),)),
    "from_local of partial sums": (
        lambda x: from_local(x, Partial()).redistribute(placements=[Shard(0)]).to_local().sin(),
        lambda: (local(4, 3),),
    ),
    "from_local, transposed": (lambda x: from_local(x.t(), Shard(0)).sin(), lambda: (local(2, 4),)),
    "a slice of a mesh": (
        lambda x: DTensor.from_local(x, grid()["columns"], [Shard(0)]).sin(),
        lambda: (local(2, 4),),
    ),
    "two dimensions of a mesh": (
        lambda x: DTensor.from_local(x, grid(), [Shard(0), Shard(1)]).redistribute(placements=[Shard(0), WHOLE]).sin(),
        lambda: (local(2, 4),),
    ),
    "full_tensor": (lambda x: x.sin().full_tensor().cos(), lambda: (distributed(4, 3),)),
    "grad_placements": (
        lambda x: x.sin().to_local(grad_placements=[Partial()]).square(),
        lambda: (distributed(4, 3, place=WHOLE),),
    ),
    "redistribute": (lambda x: x.redistribute(placements=[WHOLE]).sin(), lambda: (distributed(4, 4),)),
    "redistribute, async": (
        lambda x: x.redistribute(placements=[WHOLE], async_op=True).sin().to_local(),
        lambda: (distributed(4, 4),),
    ),
    "linear": (lambda x, w: F.linear(x, w).sin(), _linear),
    "linear, partial sums": _matmul(Shard(1), Shard(0)),
    "matmul of shards": _matmul(Shard(0), WHOLE),
    "uses of different gradients": (_uses, _linear),
    "uneven shards": (
        lambda x, w: F.linear(x, w).sin(),
        lambda: (distributed(5, 4, place=WHOLE), distributed(7, 4)),
    ),
    "an empty shard": (lambda x: (x.sin(), x.sum()), lambda: (distributed(1, 4),)),
    "an empty shard, gathered": (lambda x: x.sin().redistribute(placements=[WHOLE]), lambda: (distributed(1, 4),)),
    "an empty shard of a weight": (
        lambda x, w: F.linear(x, w).sin(),
        lambda: (distributed(2, 4, place=WHOLE), distributed(1, 4)),
    ),
    "replicated beside shards": (
        lambda x, y: x * y + x.sin(),
        lambda: (distributed(4, 4, place=WHOLE), distributed(4, 4)),
    ),
    "reductions of shards": (_reductions, lambda: (distributed(4, 4),)),
    "reduced, in a checkpoint": (
        lambda x: checkpoint(lambda y: y.sin().sum().to_local(), x, use_reentrant=False),
        lambda: (distributed(4, 4),),
    ),
    "a result that is not used": (lambda x: (x.sum().full_tensor(), x.sin())[1], lambda: (distributed(5, 4),)),
    "views": (lambda x: x.view(2, 2, 4).transpose(1, 2).sin(), lambda: (distributed(4, 4),)),
    "layer norm": (
        lambda x, w: F.layer_norm(x, (4,), w),
        lambda: (distributed(4, 4), distributed(4, place=WHOLE)),
    ),
    "embedding": (_rows_of_an_embedding, lambda: (distributed(4, 4),)),
    "softmax over the shards": (lambda x: x.softmax(-1), lambda: (distributed(4, 4, place=Shard(1)),)),
    "autocast": (_under_autocast, _linear),
    "without a gradient in between": (lambda x: x.sin() * x.detach(), lambda: (distributed(4, 4),)),
    "a DTensor of the program": (
        lambda x: x.sin() + zeros(4, 4, device_mesh=mesh(), placements=[Shard(0)]),
        lambda: (distributed(4, 4),),
    ),
    "distribute_tensor": (
        lambda x: distribute_tensor(x.detach(), mesh(), [Shard(0)]).sin(),
        lambda: (numbers(4, 4),),
    ),
    "a hook on the argument": (lambda x: x.sin(), _hooked),
    "decided by placements": (lambda x: x.sin() if x.placements[0].is_shard() else x, lambda: (distributed(4, 4),)),
}


def _result_and_gradients(run: Callable[..., Any], make: Callable[[], Any]) -> list[Any]:
    arguments = make()
    result = run(*arguments)
    results = result if isinstance(result, tuple) else (result,)
    losses = [(whole(each) * (1 + torch.arange(whole(each).numel()).view(each.shape))).sum() for each in results]
    if any(loss.requires_grad for loss in losses):
        torch.stack(losses).sum().backward()
    return [*[each.detach() for each in results], *[each.grad for each in arguments if each.grad is not None]]


def function(name: str) -> None:
    program, make = FUNCTIONS[name]
    compiled = thunder.jit(program)
    for _ in range(2):
        expected, found = _result_and_gradients(program, make), _result_and_gradients(compiled, make)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert_same(ours, theirs)
    assert thunder.cache_misses(compiled) == 1


def placements_of_gradients() -> None:
    """As in eager, also where the local shapes differ from those of the tensor."""

    def gradient(program: Any, x: Any) -> Any:
        program(x, distributed(6, 4, seed=1)).to_local().square().sum().backward()
        return x.grad

    for run in (F.linear, thunder.jit(F.linear)):
        assert gradient(run, distributed(4, 4, place=WHOLE)).placements == (Partial(),)
    compiled = thunder.jit(torch.sum)
    for run in (torch.sum, compiled, compiled):
        x = distributed(4, 4)
        run(x).full_tensor().backward()
        assert x.grad.placements == (WHOLE,)
        assert torch.equal(x.grad.full_tensor(), torch.ones(4, 4))
        run(x).full_tensor().backward()  # is added
        assert torch.equal(x.grad.full_tensor(), torch.ones(4, 4) * 2)


def gradients_of_some_results() -> None:
    def program(x: Any) -> Any:
        hidden = x.sin()
        return hidden.sum(), hidden.cos()

    compiled = thunder.jit(program)
    for results in ((0,), (1,), (0, 1)):
        gradients = []
        for run in (program, compiled):
            x = distributed(5, 4)
            found = run(x)
            torch.stack([found[index].full_tensor().sum() for index in results]).sum().backward()
            gradients.append(x.grad.full_tensor())
        torch.testing.assert_close(*gradients)


def results_that_one_process_uses() -> None:
    """The other one has no gradient from them, and does not communicate for it."""

    def program(x: Any, y: Any) -> Any:
        result = x.sin().to_local().sum()
        gathered = (x + y).redistribute(placements=[WHOLE]).to_local().sum()
        return result + gathered if dist.get_rank() == 0 else result

    for rows in (4, 5, 1):
        gradients: list[Any] = []
        for run in (program, thunder.jit(program)):
            x, y = distributed(rows, 4, place=WHOLE), distributed(rows, 4, seed=1)
            run(x, y).backward()
            gradients.append([None if each.grad is None else each.grad for each in (x, y)])
            dist.barrier()
        for ours, theirs in zip(*gradients, strict=True):
            assert type(ours) is type(theirs)
            if ours is not None:
                assert ours.placements == theirs.placements
                torch.testing.assert_close(ours.to_local(), theirs.to_local())


def guards() -> None:
    compiled = thunder.jit(lambda x: x.sin() * 2)
    others = (
        distributed(4, 4),
        distributed(4, 4, place=Shard(1)),
        distributed(4, 4, place=WHOLE),
        DTensor.from_local(torch.ones(2, 4), mesh(), [Shard(0)], shape=torch.Size([3, 4]), stride=(4, 1)),
        distribute_tensor(
            numbers(4, 4),
            init_device_mesh(torch.get_default_device().type, (1, dist.get_world_size())),
            [Shard(0), Shard(1)],
        ),
    )
    for count, x in enumerate(others, 1):
        for _ in range(2):
            with torch.no_grad():
                assert_same(compiled(x), x.sin() * 2)
        assert thunder.cache_misses(compiled) == count


def rules_of_dtensor_are_guarded() -> None:
    compiled, x, y = thunder.jit(partial(torch.log_softmax, dim=1)), distributed(4, 6, place=Shard(1)), torch.ones(4, 4)
    for inside in (False, True, False, True):
        with torch.no_grad():
            if inside:
                with loss_parallel():
                    assert compiled(x).placements == (Shard(1),)
            else:
                assert compiled(x).placements == torch.log_softmax(x, 1).placements == (WHOLE,)
    assert thunder.cache_misses(compiled) == 2
    added = thunder.jit(torch.add)
    with torch.no_grad():
        with implicit_replication():
            assert_same(added(distributed(4, 4), y), distributed(4, 4) + y)
        with pytest.raises(RuntimeError, match=r"got mixed torch.Tensor and DTensor, need to convert all torch.Tensor"):
            added(distributed(4, 4), y)


def gradients_from_outside() -> None:
    compiled = thunder.jit(torch.sin)
    for place in (WHOLE, Shard(0)):
        x = distributed(4, 4)
        compiled(x).backward(distribute_tensor(numbers(4, 4, seed=5), mesh(), [place]))
        torch.testing.assert_close(x.grad.full_tensor(), numbers(4, 4).cos() * numbers(4, 4, seed=5))
    with pytest.raises(RuntimeError, match="pass a gradient of the class of the result to backward"):
        torch.autograd.grad(compiled(x), x, torch.ones(4, 4))


def _dropped(x: Any) -> Any:
    return F.dropout(x, 0.5)


def random_functions() -> None:
    """On the CPU each process draws from its own generator, as in eager; on GPUs DTensor's generator is refused."""
    compiled = thunder.jit(_dropped)
    if ON_GPUS:
        with pytest.raises(UnsupportedError, match="dropout"):
            compiled(distributed(4, 4))
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "DTensor random operators may not have complete support")
        for seed in range(2):
            torch.manual_seed(seed)
            expected = _dropped(distributed(4, 4))
            state = torch.get_rng_state()
            torch.manual_seed(seed)
            assert_same(compiled(distributed(4, 4)), expected)
            assert torch.equal(torch.get_rng_state(), state)


def _inner_gradient(x: Tensor) -> Any:
    return torch.autograd.grad(from_local(x.sin(), WHOLE).sin().to_local().sum(), x)


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], Any], str]] = {
    "run_check": (
        lambda x: DTensor.from_local(x, mesh(), [WHOLE], run_check=True),
        lambda: (local(4, 4),),
        r"run_check=True\) inside a compiled program",
    ),
    "written": (lambda x: x.sin().add_(1), lambda: (distributed(4, 4),), "add_ writes while autograd records"),
    "distributed with a gradient": (
        lambda x: distribute_tensor(x, mesh(), [Shard(0)]).sin(),
        lambda: (local(4, 4),),
        "the program creates a tensor that requires grad",
    ),
    "gradients inside": (_inner_gradient, lambda: (local(4, 4),), "in a program that itself computes gradients"),
    "masked partial sums": (
        lambda w: F.embedding(from_local(torch.tensor([0, 3, 1]), WHOLE), w),
        lambda: (distributed(4, 4),),
        "returns or stores a DTensor whose placement is a _MaskPartial",
    ),
    "a value": (lambda x: x.sum().item(), lambda: (distributed(4, 4),), "returns a value of a tensor to Python"),
}


def refused(name: str) -> None:
    program, make, message = REFUSED[name]
    mesh()  # made outside of the program
    with pytest.raises(UnsupportedError, match=message) as caught:
        thunder.jit(program)(*make())
    assert "tensor_parallel_cases.py" in str(caught.value)


def second_derivatives_are_refused() -> None:
    x = distributed(4, 4)
    loss = thunder.jit(torch.sin)(x).to_local().sum()
    with pytest.raises(UnsupportedError, match="second derivatives"):
        torch.autograd.grad(loss, x, create_graph=True)


def _model(case: Callable[[Any], None]) -> None:
    case(mesh())


OF_TENSORS = (
    *(placements_of_gradients, gradients_of_some_results, results_that_one_process_uses, gradients_from_outside),
    *(guards, rules_of_dtensor_are_guarded, random_functions, second_derivatives_are_refused),
)
CASES: dict[str, Callable[[], None]] = {
    **{name: partial(function, name) for name in FUNCTIONS},
    **{f"refused: {name}": partial(refused, name) for name in REFUSED},
    **{case.__name__: case for case in OF_TENSORS},
    **{case.__name__: partial(_model, case) for case in MODELS},
}
OLD = Version(torch.__version__).release < (2, 13)
EAGER_FAILS = ("results_that_one_process_uses", "uneven_sequences") if OLD else ()
"""Cases that eager PyTorch 2.11 does not run: a process waits for the other one, or a view of an uneven part fails."""
