"""``_base`` and ``_is_view``: the tensor objects that eager names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder


def own_value(x: torch.Tensor) -> Any:
    y = x * 2
    view = y[0]
    y.add_(1)
    return view._base is y, view[1:]._base is y, view._is_view(), y._base is None, view._base + 1


def of_input(x: torch.Tensor) -> Any:
    return x[0]._base is x, x[0].t()._base is x, x._is_view(), x._base is None, x * 2


def nobody_holds_it(x: torch.Tensor) -> Any:
    view = (x * 2)[0]
    return view._base * x, view


def equal_calls(x: torch.Tensor) -> Any:
    found = []
    for _ in range(3):
        y = x * 2
        found.append((y.view(-1)[1:]._base is y, y + 1))
    return found


def written(x: torch.Tensor) -> Any:
    y = x * 2
    view = y[0]
    view._base.mul_(3)
    return y, view


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("program", [own_value, of_input, nobody_holds_it, equal_calls, written])
def test_program(program: Callable[..., Any], grad: bool, check_gradients: Callable[..., None]) -> None:
    check_gradients(program, lambda: (torch.randn(3, 4, requires_grad=grad),))


def test_module(check_gradients: Callable[..., None]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.register_buffer("state", torch.zeros(2, 4))

        def forward(self, x: torch.Tensor) -> Any:
            part = self.state[0]
            return x * self.weight, self.weight[1:]._base is self.weight, part._base is self.state

    check_gradients(Model(), lambda: (torch.randn(3, 4),))


def test_base_that_the_program_does_not_have() -> None:
    x = torch.randn(3, 4)[1:]
    with pytest.raises(thunder.UnsupportedError, match="_base of a view"):
        thunder.jit(lambda x: x[0]._base * 2)(x)


SHAPES_IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "unsqueeze_ at the end": lambda x: x.unsqueeze_(-1),
    "squeeze_": lambda x: x.squeeze_(),
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "as_strided_": lambda x: x.as_strided_((x.numel(),), (1,)),
}


WRITTEN = ("base", "row", "all", "column")
SHAPES = {"two rows": (2, 3), "one row": (1, 3)}
GRAPHS = {"": False, "reads the graph": True}
EACH_OPERATOR = [
    (name, WRITTEN[place % 4], list(SHAPES)[place % 2], list(GRAPHS)[place // 4])
    for place, name in enumerate(SHAPES_IN_PLACE)
]
"""Each operator once, with all that is written, both shapes, and with and without a read of the graph."""
OTHERS = [case for case in itertools.product(SHAPES_IN_PLACE, WRITTEN, SHAPES, GRAPHS) if case not in EACH_OPERATOR]


@pytest.mark.parametrize(("name", "written", "shape", "graph"), EACH_OPERATOR)
def test_base_that_changes_its_shape(
    name: str, written: str, shape: str, graph: str, check_gradients: Callable[..., None]
) -> None:
    check_gradients(*base_that_changes_its_shape(name, written, shape, graph))


@pytest.mark.parametrize(("name", "written", "shape", "graph"), OTHERS)
@pytest.mark.battery
def test_bases_that_change_their_shape(
    name: str, written: str, shape: str, graph: str, check_gradients: Callable[..., None]
) -> None:
    check_gradients(*base_that_changes_its_shape(name, written, shape, graph))


def base_that_changes_its_shape(name: str, written: str, shape: str, graph: str) -> tuple[Callable[..., Any], ...]:
    """A program, and a function that makes its arguments."""

    def program(x: torch.Tensor) -> Any:
        y = x * 2
        views = [y[0:1], y.view(-1), y[:, 1]]
        SHAPES_IN_PLACE[name](y)
        [y, *views][WRITTEN.index(written)].mul_(3)
        if GRAPHS[graph]:
            torch.autograd.grad((x * 2).sum(), x)
        return y.sin(), *[view.sin() for view in views], y, views[2]

    return program, lambda: (torch.randn(SHAPES[shape], requires_grad=True),)


def test_a_base_that_loses_elements_of_its_views_is_refused() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        view = y.view(-1)
        y.as_strided_((3,), (1,))
        return view * y.sum()

    with pytest.raises(thunder.UnsupportedError, match="changes the size"):
        thunder.jit(program)(torch.randn(2, 3, requires_grad=True))
