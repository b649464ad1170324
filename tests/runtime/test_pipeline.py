"""The pipeline: which steps a program takes, what the report shows of them, and that the manager runs all passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.passes.base import Pass
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.transform import Transform
from thunder_testing.pointwise import Pointwise

TAIL = ["widen_products", "overlap_gradients", "AssignExecutors", "DeleteLastUse"]


def stages(compiled: Any) -> list[str]:
    return [stage.name for stage in thunder.explain(compiled).entries[0].stages]


def later(compiled: Any) -> list[str]:
    names = stages(compiled)
    return names[names.index("code generation") + 1 :]


def two_results(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.mm(x, weight)
    return y.sin(), y.cos()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)


def test_the_steps_of_a_backward_that_is_made_later_are_shown() -> None:
    compiled, (x, weight) = thunder.jit(two_results, executors=[]), inputs()
    outputs = compiled(x, weight)
    assert later(compiled) == []
    found = torch.autograd.grad(outputs[0].sum(), x)
    assert later(compiled) == ["ZeroCotangents", *TAIL]
    torch.testing.assert_close(found, torch.autograd.grad(two_results(x, weight)[0].sum(), x))
    torch.autograd.grad(compiled(x, weight)[0].sum(), x)
    assert later(compiled) == ["ZeroCotangents", *TAIL]  # it is made once
    torch.autograd.grad(compiled(x, weight)[1].sum(), weight)
    assert later(compiled) == ["ZeroCotangents", *TAIL] * 2


def test_the_steps_of_second_derivatives_are_shown() -> None:
    compiled, (x, weight) = thunder.jit(two_results, executors=[Pointwise()]), inputs()
    (first,) = torch.autograd.grad(compiled(x, weight)[0].sum(), x, create_graph=True)
    assert later(compiled)[:2] == ["AssignExecutors", "DeleteLastUse"]
    (expected,) = torch.autograd.grad(two_results(x, weight)[0].sum(), x, create_graph=True)
    torch.testing.assert_close(*[torch.autograd.grad(one.sum(), weight) for one in (first, expected)])


def test_a_program_that_runs_as_recorded_is_offered_to_no_executor() -> None:
    x = torch.randn(3, requires_grad=True)
    compiled = thunder.jit(lambda x: torch.autograd.grad(x.sin().sum(), x)[0], executors=[Pointwise()])
    torch.testing.assert_close(compiled(x), x.cos())
    assert stages(compiled)[1:4] == ["LeaveAsRecorded", "AssignExecutors", "DeleteLastUse"]


def test_a_program_whose_inputs_get_no_gradient_takes_the_steps_of_inference() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(3, requires_grad=True), x.detach() * 2

    x = torch.randn(3, requires_grad=True)
    compiled = thunder.jit(function, executors=[])
    torch.testing.assert_close(compiled(x), function(x))
    names = stages(compiled)
    assert names[names.index("Differentiate") + 1] == "InlineCheckpoints"
    assert "Reinplace" in names
    assert "Partition" not in names


def test_direct_views_can_be_left_out() -> None:
    x, weight = (tensor.detach() for tensor in inputs())

    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, weight).t()[1:].cumsum(1)

    compiled = thunder.jit(function, executors=[Pointwise()], transforms=[{"direct_views": {"enabled": False}}])
    torch.testing.assert_close(compiled(x, weight), function(x, weight), rtol=0, atol=0)
    assert "direct_views" not in stages(compiled)
    assert "torch.t" in [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols]


def classes(kind: type[Pass[Any]]) -> Iterator[type[Pass[Any]]]:
    for one in kind.__subclasses__():
        yield one
        yield from classes(one)


def test_the_manager_runs_all_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    managed: list[str] = []
    running: list[str] = []

    def run_by_manager(manager: PassManager, single: Pass[Any], *args: Any) -> Any:
        managed.append(single.name)
        return run_of_manager(manager, single, *args)

    def watched(kind: type[Pass[Any]]) -> Any:
        original = kind.run

        def run(self: Pass[Any], *args: Any) -> Any:
            running.append(self.name)
            return original(self, *args)

        return run

    thunder.jit(two_results, executors=[Pointwise()])(*inputs())[0].sum().backward()  # imports the passes
    run_of_manager = PassManager.run
    monkeypatch.setattr(PassManager, "run", run_by_manager)
    for kind in classes(Pass):
        if "run" in vars(kind) and kind is not Transform:
            monkeypatch.setattr(kind, "run", watched(kind))

    def program(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            y = checkpoint(lambda x: torch.mm(x, weight).sin(), x, use_reentrant=False)
        cache = torch.zeros(4, 5)
        cache[1:3] = torch.nn.functional.layer_norm(y.detach().float()[:2], (5,))
        return y.float().t(), cache

    compiled, (x, weight) = thunder.jit(program, executors=[Pointwise()]), inputs()
    output = compiled(x, weight)[0]
    torch.autograd.grad(output.sum(), x, retain_graph=True)
    torch.autograd.grad(output.square().sum(), [x, weight], create_graph=True)
    with torch.no_grad():
        compiled(x, weight)
    assert {"Functionalize", "Reinplace", "Partition", "ZeroCotangents", "direct_views"} <= set(managed)
    assert running == managed
