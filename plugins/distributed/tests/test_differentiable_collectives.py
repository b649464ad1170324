"""`torch.distributed.nn.functional` inside of programs: values and gradients of two processes, as in eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.nn import functional
from torch.distributed.nn.functional import all_reduce as imported_all_reduce
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.ir.effects import WAITS, Effects
from thunder_testing.processes import process_suite


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(x * 2) * x


def all_reduce_max(x: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(x * 2, dist.ReduceOp.MAX) * x


def of_an_input(x: torch.Tensor) -> torch.Tensor:
    return imported_all_reduce(x) + functional.all_reduce(x).sin()


def broadcast(x: torch.Tensor) -> torch.Tensor:
    return functional.broadcast(x * 2, 1) * x


def reduce(x: torch.Tensor) -> torch.Tensor:
    reduced = functional.reduce(x * 2, 0)  # other ranks get values that are not defined
    return reduced * x if dist.get_rank() == 0 else reduced * 0


def gather(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(functional.gather(x * 2, 0)).sum(0) * x


def scatter(x: torch.Tensor) -> torch.Tensor:
    return functional.scatter([x * 2, x * 3], 0) * x


def all_gather(x: torch.Tensor) -> torch.Tensor:
    return torch.cat(functional.all_gather(x * 2)).sin()


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    return functional.reduce_scatter(torch.empty_like(x), [x * 2, x * 3]) * x


def all_to_all(x: torch.Tensor) -> torch.Tensor:
    outputs = [torch.zeros_like(x) for _ in range(2)]
    received = functional.all_to_all(outputs, [x * 2, x * 3])
    return torch.cat(received).sin() + torch.cat(outputs).detach()


def all_to_all_of_the_list(x: torch.Tensor) -> torch.Tensor:
    """The list that the function fills has the gradients of its results."""
    outputs = [torch.zeros_like(x) for _ in range(2)]
    functional.all_to_all(outputs, [x * 2, x * 3])
    return torch.cat(outputs).sin()


def all_to_all_of_both(x: torch.Tensor) -> torch.Tensor:
    outputs = [torch.zeros_like(x) for _ in range(2)]
    received = functional.all_to_all(outputs, [x * 2, x * 3])
    return torch.cat(outputs).sin() + torch.cat(received)


def all_to_all_single(x: torch.Tensor) -> torch.Tensor:
    output = torch.zeros_like(x)
    return functional.all_to_all_single(output, x * 2) * x + output.detach()


def all_to_all_uneven(x: torch.Tensor) -> torch.Tensor:
    sizes = [1, 3] if dist.get_rank() == 0 else [3, 1]
    given = [1, 3] if dist.get_rank() == 0 else [3, 1]
    rows = x.repeat(2, 1)
    return functional.all_to_all_single(torch.zeros_like(rows), rows * rows, sizes, given) * 3


def several(x: torch.Tensor) -> torch.Tensor:
    for step in range(3):
        x = functional.all_reduce(x.sin() * step) + torch.cat(functional.all_gather(x))[:2]
    return x


def in_a_checkpoint(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: functional.all_reduce(y.sin()).cos(), x * 2, use_reentrant=False)


def without_derivative(x: torch.Tensor) -> torch.Tensor:
    """PyTorch has no derivative of this operator, and differentiates what its kernel calls."""
    return functional_collectives.broadcast(x * 2, 1, dist.group.WORLD) * x


def functional_all_reduce(x: torch.Tensor) -> torch.Tensor:
    return functional_collectives.all_reduce(x * 2, "sum", dist.group.WORLD) * x


def functional_all_gather(x: torch.Tensor) -> torch.Tensor:
    return functional_collectives.all_gather_tensor(x * 2, 0, dist.group.WORLD).sin()


def functional_reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    return functional_collectives.reduce_scatter_tensor(x * 2, "sum", 0, dist.group.WORLD).sin()


PROGRAMS = (
    *(all_reduce, all_reduce_max, of_an_input, broadcast, reduce, gather, scatter, all_gather, reduce_scatter),
    *(
        all_to_all,
        all_to_all_of_the_list,
        all_to_all_of_both,
        all_to_all_single,
        all_to_all_uneven,
        several,
        in_a_checkpoint,
        without_derivative,
        functional_all_reduce,
        functional_all_gather,
        functional_reduce_scatter,
    ),
)


def run(program: Callable[..., Any]) -> list[torch.Tensor]:
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch deprecates some of the functions
        warnings.filterwarnings("ignore", ".*an autograd kernel was not registered", UserWarning)
        for count in range(2):
            x = (torch.arange(6.0).reshape(2, 3) + 10 * dist.get_rank() + count).requires_grad_()
            result = program(x)
            result.square().sum().backward()
            results += [result.detach(), x.grad]
        with torch.no_grad():
            results.append(program(x))
    return results


def compare(program: Callable[..., Any]) -> None:
    compiled = thunder.jit(program)
    for theirs, ours in zip(run(program), run(compiled), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


CASES = {program.__name__: partial(compare, program) for program in PROGRAMS}


test_two_processes = pytest.mark.slow(process_suite(__name__, CASES))


@pytest.mark.usefixtures("fake_group")
@pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")
def test_forward_and_backward_have_the_channels_of_the_process_group() -> None:
    compiled = thunder.jit(all_reduce, executors=[])
    compiled(torch.ones(2, 3, requires_grad=True)).sum().backward()
    for traces in (thunder.last_traces(compiled), thunder.last_backward_traces(compiled)):
        (line,) = [line for line in traces[-1].symbols if line.effects.channels]
        assert line.effects.channels == ("0", WAITS)
    collectives = thunder.explain(compiled).entries[-1].collectives
    assert [(found.phase, found.kind, found.bytes) for found in collectives] == [
        ("forward", "all_reduce", 2 * 3 * 4),
        ("backward", "all_reduce", 2 * 3 * 4),
    ]


@pytest.mark.usefixtures("fake_group")
@pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")
def test_without_gradients_start_and_wait_are_ops_of_the_program() -> None:
    compiled = thunder.jit(all_reduce, executors=[])
    compiled(torch.ones(2, 3))
    effects = [line.effects for line in thunder.last_traces(compiled)[0].symbols if line.effects.channels]
    assert effects == [Effects(channels=("0",)), Effects(channels=(WAITS,))]


@pytest.mark.usefixtures("fake_group")
@pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")
def test_a_program_that_itself_computes_gradients_is_refused() -> None:
    def program(x: torch.Tensor) -> Any:
        w = x.detach().requires_grad_()
        return torch.autograd.grad(functional.all_reduce(w).sum(), w)

    with pytest.raises(UnsupportedError, match="in a program that itself computes gradients"):
        thunder.jit(program)(torch.ones(2, 3))
