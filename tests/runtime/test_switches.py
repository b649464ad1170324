"""Modes and flags of PyTorch's that a program changes: for its own lines, and for what comes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.ir.switches import SWITCHES, read_switches, set_switches
from thunder_testing import Comparison
from thunder_testing.difference import differences
from thunder_testing.snapshot import snapshot


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = read_switches()
    yield
    set_switches(before)


def grad_mode(x: torch.Tensor) -> Any:
    y = x * 3
    torch.set_grad_enabled(False)
    return y, x * 2


def grad_mode_entered(x: torch.Tensor) -> Any:
    torch.no_grad().__enter__()
    return x.sin() * 2


def default_dtype(x: torch.Tensor) -> Any:
    y = torch.ones(3)
    torch.set_default_dtype(torch.float64)
    return x * torch.ones(3), y


def default_dtype_for_a_line(x: torch.Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return x * y, torch.ones(3)


def deterministic(x: torch.Tensor) -> Any:
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch.empty(3) * x


def autocast_entered(x: torch.Tensor) -> Any:
    torch.autocast("cpu", torch.bfloat16).__enter__()
    return torch.outer(x, x) @ x


def autocast_set(x: torch.Tensor) -> Any:
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_cache_enabled(False)
    return torch.outer(x, x) @ x


def flags(x: torch.Tensor) -> Any:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.set_flags(_benchmark=True)
    torch.set_anomaly_enabled(True, False)
    torch.set_num_threads(2)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.mha.set_fastpath_enabled(False)
    return x * 2


def flags_of_a_block(x: torch.Tensor) -> Any:
    with torch.backends.cudnn.flags(enabled=False), torch.autograd.set_multithreading_enabled(False):
        y = x.exp()
    return y * 2


def with_backward(x: torch.Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    (x * torch.ones(3)).sum().backward()
    torch.set_grad_enabled(False)
    return x.grad + torch.zeros(3)


def only_written(x: torch.Tensor) -> None:
    torch.set_grad_enabled(False)
    x.add_(1)


PROGRAMS = [
    grad_mode, grad_mode_entered, default_dtype, default_dtype_for_a_line, deterministic, autocast_entered,
    autocast_set, flags, flags_of_a_block, with_backward, only_written,
]  # fmt: skip


def observe(function: Callable[..., Any], before: dict[str, Any]) -> Any:
    found = []
    for _ in range(3):
        x = torch.arange(3.0).requires_grad_()
        result = function(x)
        switches = read_switches()
        found.append(snapshot(result=result, x=x, grad=x.grad, switches=repr(switches)))
        set_switches(before)
    return found


@pytest.mark.parametrize("options", [{"executors": []}, {}], ids=["reference", "default"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Callable[..., Any], options: dict[str, Any]) -> None:
    before = read_switches()
    expected = observe(program, before)
    compiled = thunder.jit(program, **options)
    for one, other in zip(expected, observe(compiled, before), strict=True):
        assert not differences(one, other, Comparison(rtol=1e-5, atol=1e-6))
    assert thunder.cache_misses(compiled) == 1


def test_another_mode_at_the_next_call_is_another_entry() -> None:
    compiled = thunder.jit(grad_mode)
    x = torch.ones(3, requires_grad=True)
    assert [y.requires_grad for y in compiled(x)] == [True, False]
    assert [y.requires_grad for y in compiled(x)] == [False, False]
    assert thunder.cache_misses(compiled) == 2


def test_modes_of_ops_leave_executors_their_ops() -> None:
    compiled = thunder.jit(grad_mode)
    compiled(torch.ones(3, requires_grad=True))
    assert thunder.explain(compiled).entries[0].as_recorded is None


def test_an_exception_of_the_program_leaves_changes_as_in_eager() -> None:
    def program(x: torch.Tensor) -> None:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        raise KeyError("x")

    before = read_switches()
    seen = []
    for function in (program, thunder.jit(program)):
        try:
            with pytest.raises(KeyError):
                function(torch.ones(3))
            seen.append(read_switches())
        finally:
            set_switches(before)
    assert seen[0] == seen[1] != before


def test_a_program_that_cannot_be_recorded_leaves_all_as_it_was() -> None:
    def program(x: torch.Tensor) -> None:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        bool(x.sum() > 0)

    before = read_switches()
    with pytest.raises(thunder.DataDependentError):
        thunder.jit(program, sharp_edges="error")(torch.ones(3))
    assert read_switches() == before


def test_default_device_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.set_default_device("meta")
        return x * 2

    with pytest.raises(UnsupportedError, match="set_default_device"):
        thunder.jit(program)(torch.ones(3))
    assert torch.get_default_device() == torch.device("cpu")


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_each_is_set_to_what_was_read(switch: Any) -> None:
    before = read_switches()
    switch.set(switch.get())
    assert read_switches() == before
