"""Programs of three ranks that communicate alike, or not. Run by `tests.runtime.test_agreement`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import thunder
from thunder_core.runtime import agreement
from thunder_core.runtime.agreement import VARIABLE

SECONDS: Final = 3.0


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    os.environ[VARIABLE] = str(seconds)
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def reduced(x: torch.Tensor, operation: str = "sum", group: Any = None) -> torch.Tensor:
    name = (group or dist.group.WORLD).group_name
    return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x, operation, name))


def error_of(program: Callable[..., Any], *args: Any) -> str:
    """The error of this rank, once all ranks have theirs: nobody goes on before."""
    try:
        thunder.jit(program)(*args)
    except thunder.CollectiveMismatchError as error:
        dist.barrier()
        return str(error)
    raise AssertionError("CollectiveMismatchError is not raised")


def ranks_that_agree() -> None:
    compiled = thunder.jit(lambda x: reduced(x * 2) + 1)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 7.0))


def another_reduction_is_an_error_on_all_ranks() -> None:
    operation = "max" if dist.get_rank() == 1 else "sum"
    start = time.monotonic()
    text = error_of(lambda x: reduced(reduced(x), operation), torch.ones(3))
    assert time.monotonic() - start < 20, "seen at once, not at the end of the 30 s"
    assert "differ from collective 2 on" in text, text
    assert "all_reduce 'sum' of f32[3]" in text, text
    assert "all_reduce 'max' of f32[3]" in text, text
    assert text.count("agreement_cases.py") >= 2, text


def another_shape_is_an_error_on_all_ranks() -> None:
    text = error_of(reduced, torch.ones(20 + (dist.get_rank() == 2)))
    assert "f32[20]" in text, text
    assert "f32[21]" in text, text


def one_collective_more_is_an_error_on_all_ranks() -> None:
    twice = dist.get_rank() == 0
    text = error_of(lambda x: reduced(reduced(x)) if twice else reduced(x), torch.ones(4))
    assert "has none, there are 1" in text, text


def collectives_in_place_are_compared() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if dist.get_rank():
            dist.broadcast(y, 0)
        else:
            dist.all_reduce(y)
        return y

    text = error_of(program, torch.ones(3))
    assert "broadcast of f32[3]" in text, text
    assert "all_reduce of f32[3]" in text, text


def ranks_go_on_after_an_error() -> None:
    error_of(lambda x: reduced(x, "max" if dist.get_rank() else "min"), torch.ones(5))
    assert torch.equal(thunder.jit(reduced)(torch.ones(5)), torch.full((5,), 3.0))


def an_error_on_one_rank_does_not_hang_the_others() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 1:
            raise ValueError("of one rank")
        return reduced(x.sin())

    start = time.monotonic()
    with limit(SECONDS):
        if dist.get_rank() == 1:
            with pytest.raises(ValueError, match="of one rank"):
                thunder.jit(program)(torch.ones(6))
            dist.barrier()
        else:
            assert "rank 1 has not compiled" in error_of(program, torch.ones(6))
    assert time.monotonic() - start < SECONDS + 15


def a_rank_that_compiles_at_another_call_goes_on() -> None:
    """A guard of one rank fails: its new program communicates like the one that the others have."""
    settings = {"scale": 1.0}
    compiled = thunder.jit(lambda x: reduced(x.flatten()[:2]) * settings["scale"])
    compiled(torch.ones(4))
    misses = thunder.cache_misses(compiled)
    if dist.get_rank() == 2:
        settings["scale"] = 2.0
    start = time.monotonic()
    result = compiled(torch.ones(4) if dist.get_rank() != 2 else torch.ones(2, 2, dtype=torch.float32))
    assert torch.equal(result, torch.full((2,), 3.0 * settings["scale"]))
    assert time.monotonic() - start < 15
    assert thunder.cache_misses(compiled) - misses == (dist.get_rank() == 2)


def ranks_outside_of_a_group_do_not_compile() -> None:
    group = dist.new_group([0, 2])
    if dist.get_rank() != 1:
        result = thunder.jit(lambda x: reduced(x, group=group))(torch.ones(3))
        assert torch.equal(result, torch.full((3,), 2.0))
    dist.barrier()


def programs_in_another_order_are_an_error() -> None:
    """Each rank waits with the program that the others have not come to."""
    first, second = (lambda x: reduced(x.cos(), "min")), (lambda x: reduced(x[:3].cos(), "product"))
    program = first if dist.get_rank() else second
    text = error_of(program, torch.ones(7))
    assert "differ from collective 1 on" in text, text


def nothing_is_compared_with_a_timeout_of_zero() -> None:
    with limit(0), mock.patch.object(agreement, "get_default_store") as asked:
        assert torch.equal(thunder.jit(lambda x: reduced(x[:1]))(torch.ones(8)), torch.full((1,), 3.0))
    assert not asked.called


CASES: Final[dict[str, Callable[[], None]]] = {
    case.__name__: case
    for case in (
        ranks_that_agree,
        another_reduction_is_an_error_on_all_ranks,
        another_shape_is_an_error_on_all_ranks,
        one_collective_more_is_an_error_on_all_ranks,
        collectives_in_place_are_compared,
        ranks_go_on_after_an_error,
        an_error_on_one_rank_does_not_hang_the_others,
        a_rank_that_compiles_at_another_call_goes_on,
        ranks_outside_of_a_group_do_not_compile,
        programs_in_another_order_are_an_error,
        nothing_is_compared_with_a_timeout_of_zero,
    )
}
