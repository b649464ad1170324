"""Fusion executors: what their regions hold, what comes out, and what happens where they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Tag
from thunder_testing.pointwise import Pointwise

CASES: dict[str, Any] = {
    "chain": lambda x: (x.exp() * 2).sin() + 1,
    "around a product": lambda x: ((x * 2) @ x.exp().t()).sin() * 3,
    "two readers": lambda x: ((y := x.exp()) * 2, y @ y.t()),
    "returns a view": lambda x: (x.exp()[0], x.exp().t()),
    "returns a view of an input": lambda x: (x[0], x.t() * 2),
    "value and its view": lambda x: ((y := x * 2), y.t(), y[1:], y.t()[0] + 1),
    "split": lambda x: [part * 2 for part in (x * 2).chunk(2)] + list((x + 1).unbind()),
    "nothing to do": lambda x: x,
    "views alone": lambda x: x.t().reshape(-1)[1:],
    "random between": lambda x: F.dropout(x * 2, 0.5) * 3 + torch.rand_like(x),
    "reduction between": lambda x: (x * 2 - (x * 2).mean(0)) / ((x * 2).std(0) + 1),
    "constants": lambda x: x * torch.arange(4) + torch.ones(4) * 2,
    "scalars": lambda x: (x.sum() * 2, x * x.sum()),
    "dtypes": lambda x: (x.double() * 2, (x > 0).float() * x, x.to(torch.bfloat16)),
}


@pytest.mark.parametrize("name", CASES)
def test_same_values_strides_and_aliasing(name: str) -> None:
    x = torch.randn(4, 4)
    executor = Pointwise()
    torch.manual_seed(1)
    expected = CASES[name](x)
    torch.manual_seed(1)
    actual = thunder.jit(CASES[name], executors=[executor])(x)
    torch.testing.assert_close(actual, expected)
    ours, theirs = (torch.utils._pytree.tree_leaves(value) for value in (actual, expected))
    assert [value.stride() for value in ours] == [value.stride() for value in theirs]
    assert [_memory(value, ours, x) for value in ours] == [_memory(value, theirs, x) for value in theirs]


def _memory(value: torch.Tensor, others: list[torch.Tensor], x: torch.Tensor) -> list[bool]:
    return [value.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for other in (x, *others)]


def test_regions_are_as_large_as_dependencies_allow() -> None:
    executor = Pointwise()
    thunder.jit(lambda x: ((x.exp() + 1) @ x).sin() * (x.exp() - 1), executors=[executor])(torch.randn(4, 4))
    assert executor.names() == [["exp", "add"], ["sin", "sub", "mul"]]  # exp(x) is made once


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("dtypes", "random between")])
def test_training(name: str) -> None:
    x, y = (torch.randn(4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True) for _ in range(2))
    executor = Pointwise()

    def loss(outputs: Any) -> torch.Tensor:
        return sum(leaf.square().sum() for leaf in torch.utils._pytree.tree_leaves(outputs))

    (actual,) = torch.autograd.grad(loss(thunder.jit(CASES[name], executors=[executor])(x)), x)
    (expected,) = torch.autograd.grad(loss(CASES[name](y)), y)
    torch.testing.assert_close(actual, expected)


def test_decisions_and_trace() -> None:
    program = thunder.jit(lambda x: ((x * 2).sin() @ x).exp(), executors=[Pointwise()])
    program(torch.randn(4, 4))
    lines = thunder.explain(program).entries[0].decisions
    assert [line.executor for line in lines] == ["pointwise", "pointwise", "reference", "pointwise"]
    assert lines[2].declined == (("pointwise", "torch.matmul is not elementwise"),)
    final = thunder.last_traces(program)[-1]
    assert [line.symbol.executor for line in final.symbols] == ["pointwise", None, "pointwise"]
    assert "#   " in final.python(lowered=True)  # what the region holds


def test_refused_regions_go_to_the_executors_below() -> None:
    calls: list[str] = []
    single = OperatorExecutor("single", (Claim(torch.sin, lambda input: calls.append("sin") or torch.sin(input)),))
    first, second = Pointwise(refuses=("torch.exp",)), Pointwise("second", refuses=("torch.cos",))
    x = torch.randn(4, 4)

    def function(x: torch.Tensor) -> torch.Tensor:
        return ((x.exp().sin() @ x).cos().sin() @ x) * 2

    program = thunder.jit(function, executors=[first, single, second])
    torch.testing.assert_close(program(x), function(x))
    decisions = thunder.explain(program).entries[0].decisions
    found = {(line.symbol, line.executor): line.declined for line in decisions}
    assert found["torch.exp", "second"] == (("pointwise", "it cannot compile torch.exp"),)
    assert found["torch.sin", "single"] == (("pointwise", "it cannot compile torch.exp"),)
    assert found["torch.mul", "pointwise"] == ()
    assert calls == ["sin"]


def test_regions_do_not_record_gradients() -> None:
    """Compiled code writes to its own buffers; autograd would refuse that for inputs that require grad."""
    seen: list[bool] = []

    class Watching(Pointwise):
        def fuse(self, region: Any) -> Any:
            function = super().fuse(region)
            return lambda *inputs: seen.append(torch.is_grad_enabled()) or function(*inputs)

    weight = torch.randn(3, requires_grad=True)
    program = thunder.jit(lambda x, w: (x * w + 1).detach().exp() * 2, executors=[Watching("watching")])
    result = program(torch.ones(3), weight)
    torch.testing.assert_close(result, (weight + 1).detach().exp() * 2)
    assert seen == [False, True]  # the second region reads nothing that requires grad
    assert not result.requires_grad


def test_small_regions_are_left_to_others() -> None:
    program = thunder.jit(lambda x: ((x.exp() + 1) @ x).sin(), executors=[Pointwise(least=2)])
    program(torch.randn(4, 4))
    decisions = thunder.explain(program).entries[0].decisions
    assert [line.executor for line in decisions] == ["pointwise", "pointwise", "reference", "reference"]
    assert decisions[-1].declined == (("pointwise", "its region has 1 of 2 required operations"),)


def test_what_is_refused_whole_is_not_offered_again_in_parts() -> None:
    executor = Pointwise(tags=frozenset({Tag.ELEMENTWISE, Tag.OPAQUE, Tag.NORMALIZATION}), least=2)
    program = thunder.jit(lambda x: F.layer_norm(x, (4,)), executors=[executor])
    program(torch.randn(3, 4))
    (line,) = thunder.explain(program).decisions
    assert (line.executor, line.parts) == ("reference", ())
    assert line.declined == (("pointwise", "its region has 1 of 2 required operations"),)


def test_in_place_operations_and_inputs_written_later() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        x.add_(1).mul_(y)
        z += x
        y[0] = z[1] * 2
        return z + y.t()

    ours, theirs = [torch.ones(3, 3), torch.full((3, 3), 2.0)], [torch.ones(3, 3), torch.full((3, 3), 2.0)]
    torch.testing.assert_close(thunder.jit(function, executors=[Pointwise()])(*ours), function(*theirs))
    torch.testing.assert_close(ours, theirs)


def test_ops_with_effects_stay_outside() -> None:
    executor = Pointwise(tags=frozenset(Tag))
    torch.manual_seed(0)
    program = thunder.jit(lambda x: F.dropout(x * 2, 0.5) * 2, executors=[executor])
    program(torch.randn(4))
    decisions = thunder.explain(program).entries[0].decisions
    assert ("pointwise", "it has effects") in [said for line in decisions for said in line.declined]


def test_composites_whose_parts_are_fused() -> None:
    executor = Pointwise(tags=frozenset({Tag.ELEMENTWISE, Tag.OPAQUE}))
    program = thunder.jit(lambda x: F.softmax(x * 2, -1) + 1, executors=[executor])
    x = torch.randn(3, 4)
    torch.testing.assert_close(program(x), F.softmax(x * 2, -1) + 1)
    assert len(executor.regions) == 1


@pytest.mark.slow
def test_less_is_saved_where_ops_are_fused() -> None:
    """What runs again in the region of its readers costs less than what runs again by itself."""

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight).bfloat16()

    x = torch.randn(4096, 2048, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(2048, requires_grad=True)
    found = []
    for executors in ([], [Pointwise()]):
        program = thunder.jit(norm, executors=executors)
        output = program(x, weight)
        gradients = torch.autograd.grad(output.float().square().mean(), (x, weight))
        found.append((thunder.explain(program).entries[0].training.saved_bytes, output, gradients))
    (alone, *expected), (fused, *actual) = found
    torch.testing.assert_close(actual, expected)
    assert fused < alone / 4


def _raises(self: Pointwise, region: Any) -> Any:
    if any(line.symbol.name == "torch.sin" for line in region.symbols):
        raise ZeroDivisionError("oops")
    return compile_trace(region)


BROKEN: dict[str, tuple[str, Any, str]] = {
    "fuse raises": ("fuse", _raises, "its fuse failed with ZeroDivisionError: oops"),
    "fuse gives nothing": ("fuse", lambda self, region: None, "its fuse did not return a function"),
    "fuse_all gives too few": ("fuse_all", lambda self, regions: [], "its fuse did not return a function"),
    "can_fuse raises": ("can_fuse", lambda self, bound: 1 // 0, "its can_fuse failed with ZeroDivisionError"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_executors_that_fail_decline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, broken, problem = BROKEN[name]
    executor = type("Broken", (Pointwise,), {method: broken})()

    def program(x: torch.Tensor) -> Any:
        return ((x.exp() * 2) @ x).sin() + 1

    x = torch.randn(3, 3)
    compiled = thunder.jit(program, executors=[executor])
    with pytest.warns(thunder.ExecutorWarning, match=problem):
        result = compiled(x)
    torch.testing.assert_close(result, program(x))
    reasons = [reason for line in thunder.explain(compiled).decisions for _, reason in line.declined]
    assert any(problem in reason for reason in reasons)
    if name == "fuse raises":  # the other region is as good as ever
        assert thunder.last_traces(compiled)[-1].symbols[0].symbol.executor == "pointwise"
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(thunder.ExecutorError, match=problem):
        thunder.jit(program, executors=[type("Broken", (Pointwise,), {method: broken})()])(x)
