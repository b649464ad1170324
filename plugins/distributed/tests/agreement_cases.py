"""Programs of three ranks that communicate alike, or not. Run by `test_agreement.py`.

Each uses tensors of a different size, because collectives that ranks have compared stay in the store.
"""

from __future__ import annotations

import gc
import os
import re
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import thunder
from thunder_core.errors import UncacheableWarning
from thunder_plugin_distributed import agreement
from thunder_plugin_distributed.agreement import VARIABLE

SECONDS: Final = 2.0
"""A limit that a case reaches."""
PATIENCE: Final = 10_000.0
"""A limit longer than `process_suite` waits for a case: one in which a rank waits for it fails."""


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
    with limit(PATIENCE):  # seen at once, not at the end of the timeout
        text = error_of(lambda x: reduced(reduced(x), operation), torch.ones(3))
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

    text = error_of(program, torch.ones(16))
    assert "broadcast of f32[16]" in text, text
    assert "all_reduce 'sum' of f32[16]" in text, text


def reductions_in_place_are_compared() -> None:
    operation = dist.ReduceOp.MAX if dist.get_rank() == 1 else dist.ReduceOp.SUM

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y, operation)
        return y

    text = error_of(program, torch.ones(15))
    assert "all_reduce 'sum' of f32[15]" in text, text
    assert "all_reduce 'max' of f32[15]" in text, text


def ranks_go_on_after_an_error() -> None:
    error_of(lambda x: reduced(x, "max" if dist.get_rank() else "min"), torch.ones(5))
    assert torch.equal(thunder.jit(reduced)(torch.ones(5)), torch.full((5,), 3.0))


def an_error_on_one_rank_does_not_hang_the_others() -> None:
    with limit(SECONDS):
        an_error_of_one_rank(torch.sin)


def an_absent_rank_is_named() -> None:
    with limit(SECONDS):
        if dist.get_rank() == 2:
            dist.barrier()
        else:
            text = error_of(lambda x: reduced(x.tan()), torch.ones(11))
            assert re.search(r"rank (\d, )?2 has not compiled", text), text


def an_exception_after_a_collective_is_raised_on_its_rank() -> None:
    """The others would wait in vain for the second collective."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = reduced(x.sinh())
        if dist.get_rank() == 1:
            raise KeyError("of one rank")
        return reduced(y)

    with limit(PATIENCE):  # seen at once
        if dist.get_rank() == 1:
            with pytest.raises(KeyError, match="of one rank") as caught:
                thunder.jit(program)(torch.ones(14))
            (note,) = [note for note in caught.value.__notes__ if "Thunder" in note]
            assert "differ from collective 2 on" in note, note
            dist.barrier()
        else:
            text = error_of(program, torch.ones(14))
            assert "Rank 1 then raises KeyError: 'of one rank'" in text, text


def an_exception_on_all_ranks_is_raised_on_all() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        reduced(x.cosh())
        raise KeyError("of all ranks")

    with pytest.raises(KeyError, match="of all ranks"):
        thunder.jit(program)(torch.ones(13))
    dist.barrier()


def after_an_exception_others_wait_less_long_than_the_timeout() -> None:
    with (
        mock.patch.object(agreement, "timeout", return_value=PATIENCE),  # that of the process group: no variable is set
        mock.patch.object(agreement, "_SECONDS_AFTER_EXCEPTION", SECONDS),
    ):
        an_error_of_one_rank(torch.asinh)


def an_error_of_one_rank(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 1:
            raise ValueError("of one rank")
        return reduced(function(x))

    if dist.get_rank() == 1:
        with pytest.raises(ValueError, match="of one rank"):
            thunder.jit(program)(torch.ones(9))
        dist.barrier()
    else:
        text = error_of(program, torch.ones(9))
        assert "Rank 1 raised ValueError: of one rank, in a call of an_error_of_one_rank" in text, text


def a_rank_that_goes_on_after_an_exception_is_waited_for() -> None:
    """It compiles another program, and does something else."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return reduced(x.acosh())

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("of one rank")

    with mock.patch.object(agreement, "_SECONDS_AFTER_EXCEPTION", SECONDS):
        if dist.get_rank() == 1:
            with pytest.raises(ValueError, match="of one rank"):
                thunder.jit(fails)(torch.ones(10))
            thunder.jit(torch.acosh)(torch.ones(10))
            time.sleep(2 * SECONDS)
        assert torch.equal(thunder.jit(program)(torch.ones(10)), torch.zeros(10))


def a_rank_that_gives_up_in_one_group_is_withdrawn_in_all() -> None:
    """Ranks 0 and 1 differ in their group; rank 2 comes later, and must not take rank 0 for one that runs."""
    both, others = dist.new_group([0, 1]), dist.new_group([0, 2])
    rank = dist.get_rank()

    def program(x: torch.Tensor) -> torch.Tensor:
        if rank == 2:
            return reduced(x.erf(), group=others)
        y = reduced(x.erf(), "max" if rank else "min", both)
        return y if rank else reduced(y, group=others)

    with mock.patch.object(agreement, "_SECONDS_AFTER_EXCEPTION", SECONDS):
        if rank == 2:
            time.sleep(SECONDS)
            text = error_of(program, torch.ones(12))
            assert "Rank 0 raised CollectiveMismatchError: ranks 0 and 1 communicate differently" in text, text
        else:
            assert "differ from collective 1 on" in error_of(program, torch.ones(12))
    with limit(PATIENCE):  # what was withdrawn is published again where it is run
        if rank != 1:
            result = thunder.jit(lambda x: reduced(x.erf(), group=others))(torch.zeros(12))
            assert torch.equal(result, torch.zeros(12))
    dist.barrier()


def a_rank_that_compiles_at_another_call_goes_on() -> None:
    """A guard of one rank fails: its new program communicates like the one that the others have."""
    settings = {"scale": 1.0}
    compiled = thunder.jit(lambda x: reduced(x.flatten()[:2]) * settings["scale"])
    compiled(torch.ones(4))
    misses = thunder.cache_misses(compiled)
    if dist.get_rank() == 2:
        settings["scale"] = 2.0
    with limit(PATIENCE):
        result = compiled(torch.ones(4) if dist.get_rank() != 2 else torch.ones(2, 2, dtype=torch.float32))
    assert torch.equal(result, torch.full((2,), 3.0 * settings["scale"]))
    assert thunder.cache_misses(compiled) - misses == (dist.get_rank() == 2)


def ranks_with_other_calls_before_agree() -> None:
    """Calls with other sizes, as an evaluation on one rank, give that rank a program with sizes that vary."""
    compiled = thunder.jit(lambda x, all_ranks: reduced(x * 3, "max") if all_ranks else x * 3)
    if dist.get_rank() == 0:
        for size in (21, 22):
            compiled(torch.ones(size), False)
    for size in (23, 23, 24, 25):
        assert torch.equal(compiled(torch.ones(size), True), torch.full((size,), 3.0))


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


def a_store_lives_no_longer_than_its_process_group() -> None:
    """A store that stays alive keeps its port, where the next process group would read what the last one wrote."""
    store = dist.PrefixStore("of another process group", agreement.get_default_store())
    alive = weakref.ref(store)
    with mock.patch.object(agreement, "get_default_store", return_value=store):
        assert torch.equal(thunder.jit(reduced)(torch.ones(26)), torch.full((26,), 3.0))
    del store
    gc.collect()
    assert alive() is None


def nothing_is_compared_with_a_timeout_of_zero() -> None:
    with limit(0), mock.patch.object(agreement, "get_default_store") as asked:
        assert torch.equal(thunder.jit(lambda x: reduced(x[:1]))(torch.ones(8)), torch.full((1,), 3.0))
    assert not asked.called


def _scaled(x: torch.Tensor) -> torch.Tensor:
    """Rank 1 reads an object that it receives, rank 0 sends it, and rank 2 stores it."""
    shared: list[Any] = [None if dist.get_rank() else 3.0]
    dist.broadcast_object_list(shared, src=0)
    scale = shared[0] * 1 if dist.get_rank() == 1 else 3.0
    return reduced(x.erfc() * scale)


def ranks_run_a_call_eagerly_with_one_that_has_to() -> None:
    compiled, x = thunder.jit(_scaled), torch.ones(33)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is run by eager PyTorch on all ranks", UncacheableWarning)
        for _ in range(3):
            assert torch.equal(compiled(x), _scaled(x))
    assert sum(thunder.explain(compiled).fallbacks.values()) == 3
    assert torch.equal(thunder.jit(reduced)(torch.ones(33)), torch.full((33,), 3.0))  # compiled as before


CASES: Final[dict[str, Callable[[], None]]] = {
    case.__name__: case
    for case in (
        ranks_that_agree,
        another_reduction_is_an_error_on_all_ranks,
        another_shape_is_an_error_on_all_ranks,
        one_collective_more_is_an_error_on_all_ranks,
        collectives_in_place_are_compared,
        reductions_in_place_are_compared,
        ranks_go_on_after_an_error,
        an_error_on_one_rank_does_not_hang_the_others,
        an_absent_rank_is_named,
        an_exception_after_a_collective_is_raised_on_its_rank,
        an_exception_on_all_ranks_is_raised_on_all,
        after_an_exception_others_wait_less_long_than_the_timeout,
        a_rank_that_goes_on_after_an_exception_is_waited_for,
        a_rank_that_gives_up_in_one_group_is_withdrawn_in_all,
        a_rank_that_compiles_at_another_call_goes_on,
        ranks_with_other_calls_before_agree,
        ranks_outside_of_a_group_do_not_compile,
        programs_in_another_order_are_an_error,
        a_store_lives_no_longer_than_its_process_group,
        nothing_is_compared_with_a_timeout_of_zero,
        ranks_run_a_call_eagerly_with_one_that_has_to,
    )
}
