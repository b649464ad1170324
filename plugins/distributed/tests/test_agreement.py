"""Ranks compare the collectives of new programs: between three processes, and what is compared."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from agreement_cases import CASES

import thunder
from thunder_core.pytorch_internals import FakeStore
from thunder_plugin_distributed import agreement
from thunder_plugin_distributed.agreement import VARIABLE
from thunder_testing.processes import process_suite

TYPICAL = (
    *("ranks_that_agree", "another_reduction_is_an_error_on_all_ranks", "an_absent_rank_is_named"),
    "a_rank_that_gives_up_in_one_group_is_withdrawn_in_all",
)
test_typical = pytest.mark.slow(process_suite("agreement_cases", TYPICAL, processes=3))
test_three_processes = pytest.mark.battery(
    process_suite("agreement_cases", [name for name in CASES if name not in TYPICAL], processes=3)
)


def test_the_timeout_is_that_of_the_process_group_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    timeout = timedelta(seconds=77)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    try:
        assert agreement.timeout("0") == 77
        assert agreement.timeout(dist.new_group([0], timeout=timedelta(seconds=5)).group_name) == 5
        monkeypatch.setenv(VARIABLE, "1.5")
        assert agreement.timeout("0") == 1.5
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_timeout_that_is_no_number_of_seconds_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(thunder.OptionError, match=f"{VARIABLE}='{text}' is not a number of seconds"):
        agreement.timeout("0")


@pytest.mark.parametrize(("backend", "size"), [("fake", 4), ("gloo", 1)])
def test_one_rank_and_fake_groups_compare_nothing(backend: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> None:
        raise AssertionError

    monkeypatch.setattr(agreement, "get_default_store", asked)
    store = FakeStore() if backend == "fake" else dist.HashStore()
    dist.init_process_group(backend, store=store, rank=0, world_size=size)
    try:
        program = thunder.jit(lambda x: torch.ops._c10d_functional.all_reduce(x, "sum", "0"))
        torch.ops._c10d_functional.wait_tensor(program(torch.ones(2)))
    finally:
        dist.destroy_process_group()
