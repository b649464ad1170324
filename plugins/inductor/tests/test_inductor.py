"""Regions compiled by Inductor: values, gradients, strides, and what is left to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.errors import ConfigError, OptionError
from thunder_core.passes.admission import region_call
from thunder_plugin_inductor import compilers, pytorch_internals
from thunder_plugin_inductor.executor import InductorExecutor
from thunder_plugin_inductor.options import InductorOptions

needs_compiler = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)


def executor(**options: Any) -> InductorExecutor:
    return InductorExecutor(InductorOptions(**options))


class Block(nn.Module):
    """A layer of a transformer, as people write it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        return x + self.down(F.gelu(self.up(norm)))


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "elementwise": lambda x: ((x.exp() * 2).sin() + 1, x > 0),
    "views leave the region": lambda x: ((y := x * 2 + 1), y.t(), y[1:]),
    "transposed": lambda x: (x.t() * 2 + 1).contiguous() * 2,
    "softmax": lambda x: F.softmax(x * 2, -1) * 3,
    "copies": lambda x: (torch.diff(x, 0), torch.zeros_like(x).copy_(x), (y := x * 2), y.clone()),
    "gather": lambda x: (x * 2)[torch.tensor([2, 0])] + 1,
}


def shared(values: list[torch.Tensor], x: torch.Tensor) -> list[list[bool]]:
    """Which of the values and ``x`` share memory."""
    places = [value.untyped_storage().data_ptr() for value in (x, *values)]
    return [[one == other for other in places] for one in places]


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_same_values_and_strides(name: str) -> None:
    x = torch.randn(4, 4)
    program = thunder.jit(PROGRAMS[name], executors=[executor()])
    actual, expected = (torch.utils._pytree.tree_leaves(run(x)) for run in (program, PROGRAMS[name]))
    torch.testing.assert_close(actual, expected)
    assert shared(actual, x) == shared(expected, x)
    assert [value.stride() for value in actual] == [value.stride() for value in expected]
    assert "inductor" in thunder.explain(program).entries[0].executors


@needs_compiler
@pytest.mark.slow
def test_training_and_equal_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(5)])
    compiled = thunder.jit(model, executors=[executor()])
    x = torch.randn(3, 16)
    gradients = []
    for run in (compiled, model):
        model.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        gradients.append([loss.detach(), *[parameter.grad.clone() for parameter in model.parameters()]])
    torch.testing.assert_close(*gradients)
    regions = [line for line in thunder.last_traces(compiled)[-1].symbols if line.symbol.executor == "inductor"]
    assert len(regions) > len({region_call(line) for line in regions}) <= 5


@needs_compiler
@pytest.mark.slow
def test_random_numbers_are_those_of_eager() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 2 + 1, 0.5) * 3 - 1

    x = torch.randn(64)
    results = []
    for run in (thunder.jit(program, executors=[executor()]), program):
        torch.manual_seed(0)
        results.append(run(x))
    torch.testing.assert_close(*results)


@needs_compiler
@pytest.mark.slow
def test_products_outside_and_inside() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2 + 1) @ x).sin() * 2

    x = torch.randn(4, 4)
    counts = []
    for where in ("outside", "inside"):
        compiled = thunder.jit(program, executors=[executor(matmul=where)])
        torch.testing.assert_close(compiled(x), program(x))
        counts.append(len(thunder.last_traces(compiled)[-1].symbols))
        reasons = {reason for line in thunder.explain(compiled).decisions for _, reason in line.declined}
        assert reasons == (
            {"aten.mm is left to PyTorch's libraries (matmul: outside)"} if where == "outside" else set()
        )
    assert counts == [3, 1]


@needs_compiler
@pytest.mark.slow
def test_regions_are_compiled_without_the_autocast_of_the_caller() -> None:
    """Under it, PyTorch's operators would return other dtypes for the region than the program has."""

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return ((x * 2) @ x).sin()

    x = torch.randn(4, 4)
    compiled = thunder.jit(program, executors=[executor(matmul="inside")])
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), program(x))
    assert not [line.declined for line in thunder.explain(compiled).decisions if line.declined]


@needs_compiler
def test_what_inductor_refuses_goes_to_the_next_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    from thunder_plugin_inductor import compilation

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("no such kernel\nand more")

    monkeypatch.setattr(compilation, "compile_fx_inner", refuse)
    program = thunder.jit(lambda x: x.exp() * 7 + 3, executors=[executor()])
    x = torch.randn(3)
    torch.testing.assert_close(program(x), x.exp() * 7 + 3)
    (first, *_) = thunder.explain(program).decisions
    assert first.executor == "reference"
    assert first.declined == (("inductor", "Inductor rejects its region: NotImplementedError: no such kernel"),)


def test_without_a_compiler_ops_are_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(pytorch_internals, "get_cpp_compiler", none)
    compilers.missing_compiler.cache_clear()
    try:
        program = thunder.jit(lambda x: x.exp() * 2, executors=[executor()])
        torch.testing.assert_close(program(torch.zeros(3)), torch.full((3,), 2.0))
        reason = "there is no C++ compiler; install g++ or clang++, or set CXX to one"
        assert thunder.explain(program).decisions[0].declined == (("inductor", reason),)
        assert not compilers.check().ok
    finally:
        compilers.missing_compiler.cache_clear()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: torch.fft.fft(x), "Inductor has no kernels for torch.complex64"),
        (lambda x: torch.linalg.qr(x)[1], "Inductor has no kernel for aten.linalg_qr.default"),
    ],
    ids=["complex", "fallback"],
)
def test_operators_that_are_left_to_pytorch(program: Any, reason: str) -> None:
    compiled = thunder.jit(program, executors=[executor()])
    x = torch.randn(3, 3)
    torch.testing.assert_close(compiled(x), program(x))
    said = {reason for line in thunder.explain(compiled).decisions for _, reason in line.declined}
    assert reason in said or compilers.missing_compiler("cpu") in said


def test_executors_of_equal_options_are_equal() -> None:
    assert executor(inductor_config={"debug": False}) == executor(inductor_config={"debug": False})
    assert hash(executor(matmul="inside")) == hash(executor(matmul="inside"))
    assert executor(matmul="inside") != executor()


def test_modes_and_settings() -> None:
    tuned = {"max_autotune": True, "coordinate_descent_tuning": True}
    assert InductorOptions(mode="max-autotune").settings() == tuned
    assert InductorOptions(max_autotune=True).settings() == tuned | {"coordinate_descent_tuning": False}
    own = InductorOptions(mode="max-autotune", inductor_config={"max_autotune": False, "cpp.threads": 1})
    assert own.settings() == tuned | {"max_autotune": False, "cpp.threads": 1}


def test_settings_that_do_not_exist() -> None:
    with pytest.raises(ConfigError, match="use the transform 'cudagraphs'"):
        thunder.jit(torch.sin, executors=[{"inductor": {"mode": "reduce-overhead"}}])
    with pytest.raises(OptionError, match=r"has no setting 'cpp.thread'(.|\n)*did you mean 'cpp.threads'"):
        executor(inductor_config={"cpp.thread": 1})


@needs_compiler
@pytest.mark.slow
def test_settings_reach_the_kernels() -> None:
    """Kernels of one vector element have no vector instructions; the values are the same."""
    x = torch.randn(64)
    program = thunder.jit(lambda x: (x.exp() * 3).sin(), executors=[executor(inductor_config={"cpp.simdlen": 1})])
    torch.testing.assert_close(program(x), (x.exp() * 3).sin())
    assert executor(inductor_config={"cpp.simdlen": 1}) != executor()


@needs_compiler
@pytest.mark.slow
def test_selected_symbols() -> None:
    wanted = ["torch.exp", "torch.mul"]
    program = thunder.jit(lambda x: (x.exp() * 2).sin().cos(), executors=[{"inductor": {"include": wanted}}])
    x = torch.randn(5)
    torch.testing.assert_close(program(x), (x.exp() * 2).sin().cos())
    decisions = {line.symbol: line.executor for line in thunder.explain(program).decisions}
    assert [name for name, executor in decisions.items() if executor == "inductor"] == wanted
    assert set(decisions.values()) == {"inductor", "reference"}


def test_printed_values_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Asking whether a line has a kernel runs it on fake tensors, which would print these."""

    def program(x: torch.Tensor) -> torch.Tensor:
        print(x[1:].detach())
        return x * 2

    x = torch.arange(5.0, requires_grad=True)
    program(x)
    expected = capsys.readouterr().out
    thunder.jit(program, executors=[executor()])(x)
    assert capsys.readouterr().out == expected


@needs_compiler
@pytest.mark.slow
def test_zero_tensors_of_forward_mode() -> None:
    """PyTorch's zero tensors have no memory that a kernel could read; products with infinity are zero all the same."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.func.hessian(lambda x: (x.sqrt() * x.log()).sum())(x)

    x = torch.tensor([0.0, 1.0, -1.0])
    compiled = thunder.jit(program, executors=["inductor"])
    torch.testing.assert_close(compiled(x), program(x), equal_nan=True)
