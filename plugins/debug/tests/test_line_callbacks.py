"""Functions that are called around each line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_plugin_debug import Line, LineCallbacks


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.sum(torch.relu(x @ weight) * 2)


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)


def test_order_and_values() -> None:
    events: list[Any] = []
    callbacks = LineCallbacks(
        before_line=lambda line, args, kwargs: events.append(("before", line, args)),
        after_line=lambda line, args, kwargs, result: events.append(("after", line, result)),
    )
    x, weight = (tensor.detach() for tensor in arguments())
    thunder.jit(program, transforms=[callbacks])(x, weight)
    assert [(when, line.index) for when, line, _ in events] == [
        (when, index) for index in range(4) for when in ("before", "after")
    ]
    product = x @ weight
    expected = [product, torch.relu(product), torch.relu(product) * 2, (torch.relu(product) * 2).sum()]
    torch.testing.assert_close([value for when, _, value in events if when == "after"], expected)
    (_, line, args) = events[0]
    assert (line.phase, line.operation, line.executor) == ("inference", "torch.matmul", "reference")
    assert args[0] is x
    assert args[1] is weight
    assert line.location is not None
    assert "torch.relu(x @ weight)" in line.location.text
    assert (line.inputs, line.outputs) == (("x", "weight"), ("t0",))


def test_forward_and_backward() -> None:
    seen: list[tuple[str, str]] = []
    compiled = thunder.jit(
        program, transforms=[LineCallbacks(after_line=lambda line, *_: seen.append((line.phase, line.operation)))]
    )
    ours, theirs = arguments(), None
    loss = compiled(*ours)
    assert {phase for phase, _ in seen} == {"forward"}
    loss.backward()
    assert [phase for phase, _ in seen] == sorted([phase for phase, _ in seen], reverse=True)
    assert ("backward", "torch.mm") in seen
    theirs = [tensor.detach().clone().requires_grad_() for tensor in ours]
    program(*theirs).backward()
    torch.testing.assert_close([tensor.grad for tensor in ours], [tensor.grad for tensor in theirs])


def test_backward_that_is_made_later() -> None:
    """A backward for one gradient alone is compiled at its first call."""
    seen: list[Line] = []
    compiled = thunder.jit(program, transforms=[LineCallbacks(after_line=lambda line, *_: seen.append(line))])
    x, weight = arguments()
    loss = compiled(x, weight)
    seen.clear()
    torch.autograd.grad(loss, x)
    assert [line.operation for line in seen].count("torch.mm") == 1
    assert {line.phase for line in seen} == {"backward"}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ({"include": ("*relu",)}, {"torch.relu"}),
        ({"exclude": ("torch.m*",)}, {"torch.relu", "torch.sum"}),
        ({"include": ("torch.*",), "exclude": ("*relu", "*sum")}, {"torch.matmul", "torch.mul"}),
    ],
)
def test_patterns(patterns: dict[str, Any], expected: set[str]) -> None:
    seen: set[str] = set()
    callbacks = LineCallbacks(after_line=lambda line, *_: seen.add(line.operation), **patterns)
    thunder.jit(program, transforms=[callbacks])(*[tensor.detach() for tensor in arguments()])
    assert seen == expected


def test_operations_of_executors_are_called_by_what_they_compute(wrong_gelu: Any) -> None:
    lines: list[Line] = []
    callbacks = LineCallbacks(after_line=lambda line, *_: lines.append(line), include=("*gelu",))
    thunder.jit(F.gelu, executors=[wrong_gelu], transforms=[callbacks])(torch.randn(3))
    (line,) = lines
    assert (line.operation, line.executor) == ("torch.nn.functional.gelu", "wrong_gelu")
    assert line.function.endswith("_gelu_off")


def test_an_exception_ends_the_call() -> None:
    def stop(line: Line, args: Any, kwargs: Any) -> None:
        if line.operation == "torch.relu":
            raise RuntimeError("that is far enough")

    compiled = thunder.jit(program, transforms=[LineCallbacks(before_line=stop)])
    with pytest.raises(RuntimeError, match="far enough") as raised:
        compiled(*arguments())
    assert any("torch.relu(x @ weight)" in note for note in raised.value.__notes__)


def test_callbacks_record_no_gradients() -> None:
    modes = []
    callbacks = LineCallbacks(before_line=lambda *_: modes.append(torch.is_grad_enabled()))

    def slope(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(x.sin().sum(), x)[0]  # recorded by PyTorch while it runs

    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(thunder.jit(slope, transforms=[callbacks])(x), x.cos())
    assert modes
    assert not any(modes)


def test_nothing_to_call() -> None:
    with pytest.raises(thunder.ThunderError, match="has no function"):
        LineCallbacks()
