"""Lines that are not fused, and the reported reasons."""

from __future__ import annotations

from typing import Any

import fake_nvfuser
import pytest
import torch
import torch.nn.functional as F
from nvfuser_programs import compiled, executor, reasons
from torch._decomp import core_aten_decompositions

import thunder
from thunder_plugin_nvfuser.executor import NvfuserExecutor
from thunder_plugin_nvfuser.options import NvfuserOptions

X, INDEX = torch.randn(4, 6), torch.tensor([0, 1, 3])
# PyTorch 2.15 writes such a norm in operations that nvFuser has.
_WRITTEN_OUT = torch.ops.aten.linalg_vector_norm.default in core_aten_decompositions()
_NORMS: list[Any] = [] if _WRITTEN_OUT else [(lambda x: x.norm(3), "it is a norm of order 3")]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: x.to(torch.complex64) * 1j, "nvFuser does not compute with torch.complex64"),
        (lambda x: x.to(torch.float8_e4m3fn), "nvFuser does not compute with torch.float8_e4m3fn"),
        (lambda x: x.to(torch.int8), "nvFuser does not compute with torch.int8"),
        (lambda x: x[:0] * 2, "it has empty tensors"),
        (lambda x: x.reshape(2, 2, 1, 1, 1, 1, 1, 2, 3) + 1, "it works on 9 dimensions, and nvFuser on at most 8"),
        (lambda x: x[:, ::2] * 2, "nvFuser only slices with step 1"),
        (lambda x: x.flip(0), "aten.flip: nvFuser only slices with step 1"),
        (lambda x: x.argmax(), "aten.argmax: nvFuser's reductions return no indices"),
        (lambda x: x.cumsum(0), "aten.cumsum: nvFuser sorts and scans a dimension only within one block"),
        (lambda x: x.index_add(0, INDEX, x[:3]), "aten.index_add: nvFuser's scatter does not accumulate"),
        (
            lambda x: x.index_put((INDEX,), x[:3], accumulate=True),
            "aten.index_put: nvFuser's scatter does not accumulate",
        ),
        (lambda x: x[INDEX, INDEX], "it has 2 index tensors, and nvFuser indexes one dimension"),
        (lambda x: x.var(1, correction=0.5), "the correction of its variance is not an integer"),
        *_NORMS,
        (lambda x: F.pad(x, (-1, 0)), "it cuts off elements by a negative padding"),
        (
            lambda x: torch.rand_like(x),
            "aten.rand_like draws random numbers, which differ from PyTorch's in nvFuser",
        ),
        (lambda x: torch.special.i0(x), "nvFuser does not implement aten.i0.default"),
        (lambda x: x @ x.t(), "PyTorch's libraries run aten.mm.default (option matmul)"),
        (lambda x: x.t().contiguous(), "its region only moves elements (option shape_only)"),
    ],
)
def test_reasons(program: Any, reason: str) -> None:
    jitted = compiled(program)
    torch.manual_seed(0)
    actual = jitted(X)
    torch.manual_seed(0)
    torch.testing.assert_close(actual, program(X))
    assert reason in reasons(jitted)


def test_devices() -> None:
    program = thunder.jit(lambda x: x * 2 + 1, executors=[NvfuserExecutor(NvfuserOptions(), fake_nvfuser)])
    program(X)
    assert reasons(program) == {"nvFuser runs on cuda, and it works on cpu"}


def test_small_regions() -> None:
    program = compiled(lambda x: x * 2, smallest=2)
    program(X)
    assert reasons(program) == {"its region has 1 of 2 required operations"}


def test_what_nvfuser_refuses_goes_to_the_next_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise RuntimeError("no scheduler takes it\nand more")

    monkeypatch.setattr(fake_nvfuser.FusionDefinition, "execute", refuse)
    program = thunder.jit(lambda x: x.exp() * 7, executors=[executor(enable=("unique",))])
    torch.testing.assert_close(program(X), X.exp() * 7)
    assert reasons(program) == {"nvFuser rejects its region: RuntimeError: no scheduler takes it"}


def test_late_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_nvfuser.FusionDefinition, "executed", 0)
    program = compiled(lambda x: x.exp() * 9, compile_early=False, disable=("unique",))
    program(X)
    assert fake_nvfuser.FusionDefinition.executed == 1
