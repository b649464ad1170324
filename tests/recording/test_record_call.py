"""`record_call`: functions of tensors as programs, compared with PyTorch; and what it refuses."""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.compiled.function import ThunderFunction
from thunder.config import settings_of
from thunder_core.checks.source import ArgumentSource, AttributeSource, FunctionSource, ItemSource
from thunder_core.errors import UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.recording import Leaf, argument_tree, autocast_region, leaf_guard, record_call

Pair = namedtuple("Pair", ["first", "second"])
LINE = SourceLocation("model.txt", 3, "layer")


class FrontEnd:
    """Records functions of tensors, with guards on everything else in their arguments."""

    def record(self, function: Any, args: Any, kwargs: Any, request: Any) -> Any:
        guards: list[Any] = []
        trees = [argument_tree(value, ArgumentSource(index), guards) for index, value in enumerate(args)]
        leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(trees) if isinstance(leaf, Leaf)]
        tensors = [leaf for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
        guards += [leaf_guard(leaf) for leaf in leaves if leaf not in tensors]

        def program(*fakes: Any) -> Any:
            values = dict(zip(map(id, tensors), fakes, strict=True))
            given = torch.utils._pytree.tree_map(lambda leaf: values.get(id(leaf), leaf.value), trees)
            return function(*given)

        inputs = [(leaf.source, leaf.value) for leaf in tensors]
        return record_call(program, inputs, guards, location=lambda: LINE)


def compiled(function: Any) -> Any:
    settings = replace(settings_of(None, executors=[], sharp_edges="error"), front_end=FrontEnd())
    return ThunderFunction(function, settings)


def arithmetic(x: Any, y: Any) -> Any:
    return F.gelu(x) @ y.t() / 2


def writes(x: Any, y: Any) -> Any:
    y.mul_(2)
    y[0] = x.detach()[0]
    return y.sum() * x, y


def view_of_what_is_written(x: Any, y: Any) -> Any:
    z = torch.zeros_like(y)
    row = z[1]
    z.copy_(x)
    return row * 2, z


def modes(x: Any, y: Any) -> Any:
    with torch.no_grad():
        scale = x.exp()
        with torch.enable_grad():
            inner = x.sin()
    return x * scale + inner, scale


def casts(x: Any, y: Any) -> Any:
    with autocast_region("cpu", torch.bfloat16):
        first = x @ x.t() + x @ x.t()
    with autocast_region("cpu", torch.bfloat16):
        second = x @ x.t()
    return first, second, x @ x.t()


def reshaped_in_place(x: Any, y: Any) -> Any:
    z = x * 2
    z.t_().unsqueeze_(0)
    z.mul_(3)
    return z, z.squeeze(0)


def random(x: Any, y: Any) -> Any:
    return F.dropout(x, 0.5), torch.rand(3), torch.randn_like(y)


def detached(x: Any, y: Any) -> Any:
    return x.detach() * x, x.detach()


def results(x: Any, y: Any) -> Any:
    z = x + y
    return {"a": [z, None, 1.5, "text"], 2: Pair(z, (x, y)), "o": OrderedDict(k=z.t()), "d": deque([z, float("inf")])}


def several(x: Any, y: Any) -> Any:
    return (*x.split(1), *torch.var_mean(y), x.topk(2))


PROGRAMS = [
    arithmetic,
    writes,
    view_of_what_is_written,
    modes,
    casts,
    reshaped_in_place,
    random,
    detached,
    results,
    several,
]


def outcome(function: Any, leaf: bool, grad: bool) -> Any:
    torch.manual_seed(0)
    x, y = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    torch.manual_seed(1)
    with torch.set_grad_enabled(grad):
        result = function(x if leaf else x * 1, y)
    leaves, spec = torch.utils._pytree.tree_flatten(result)
    tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
    needing = [one for one in tensors if one.requires_grad and grad]
    gradients = torch.autograd.grad([one.float().sum() for one in needing], x, allow_unused=True) if needing else ()
    facts = str(spec), [one for one in leaves if one not in tensors] if not tensors else None
    state = [one.requires_grad for one in tensors], [one is x or one is y for one in tensors]
    return facts, state, [one.detach() for one in tensors], gradients, y, torch.get_rng_state()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.battery
def test_runs_are_those_of_pytorch(function: Any, leaf: bool, grad: bool) -> None:
    program, expected = compiled(function), outcome(function, leaf, grad)
    for _ in range(2):
        found = outcome(program, leaf, grad)
        assert found[:2] == expected[:2]
        torch.testing.assert_close(found[2:], expected[2:], rtol=0, atol=0)
    assert len(program.entries) == 1
    assert not program.fallbacks


def test_ambient_autocast() -> None:
    x = torch.randn(3, 3, requires_grad=True)
    program = compiled(lambda x: x @ x.t())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(program(x), x @ x.t(), rtol=0, atol=0)
        assert program(x).dtype is torch.bfloat16


NESTED = [
    ({"a": [torch.ones(2), 1], "b": (torch.ones(3),)}, {"a": [torch.ones(2), 2], "b": (torch.ones(3),)}),
    ([torch.ones(2)], (torch.ones(2),)),
    ([torch.ones(2)], [torch.ones(2), torch.ones(2)]),
    ({"a": torch.ones(2)}, {"b": torch.ones(2)}),
    (Pair(torch.ones(2), None), (torch.ones(2), None)),
    (OrderedDict(a=torch.ones(2)), {"a": torch.ones(2)}),
    (deque([torch.ones(2)]), deque([torch.ones(2), torch.ones(2)])),
    (deque([torch.ones(2)], maxlen=3), deque([torch.ones(2)], maxlen=4)),
    (torch.return_types.max((torch.ones(2), torch.ones(2))), (torch.ones(2), torch.ones(2))),
]


@pytest.mark.parametrize(("first", "second"), NESTED)
def test_the_structure_of_arguments_is_guarded(first: Any, second: Any) -> None:
    program = compiled(
        lambda tree: torch.utils._pytree.tree_map(lambda leaf: leaf * 2 if leaf is not None else 0, tree)
    )
    for value in (first, second, first, second):
        found = program(value)
        expected = torch.utils._pytree.tree_map(lambda leaf: leaf * 2 if leaf is not None else 0, value)
        assert type(found) is type(value)
        assert torch.utils._pytree.tree_structure(found) == torch.utils._pytree.tree_structure(expected)
        torch.testing.assert_close(
            torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), rtol=0, atol=0
        )
    assert len(program.entries) == 2


class Box:
    """A container whose structure can change in place."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.options = tensor, {"factor": 2}


torch.utils._pytree.register_pytree_node(
    Box, lambda box: ([box.tensor], box.options), lambda items, options: Box(*items)
)


def test_a_structure_that_changes_in_place_is_guarded() -> None:
    def program(box: Box) -> torch.Tensor:
        return box.tensor * box.options["factor"]

    given = Box(torch.ones(2))
    factors: list[int] = []

    class Scaling(FrontEnd):
        def record(self, function: Any, args: Any, kwargs: Any, request: Any) -> Any:
            (box,) = args
            factors.append(box.options["factor"])
            guards: list[Any] = []
            tree = argument_tree(box, ArgumentSource(0), guards)
            leaf = tree.tensor
            return record_call(lambda x: x * factors[-1], [(leaf.source, leaf.value)], guards, location=lambda: LINE)

    settings = replace(settings_of(None, executors=[], sharp_edges="error"), front_end=Scaling())
    recorded = ThunderFunction(program, settings)
    for factor in (2, 5, 2):
        given.options["factor"] = factor
        assert torch.equal(recorded(given), program(given))
    assert factors == [2, 5]


def test_tensors_with_several_paths_are_one_input() -> None:
    program = compiled(lambda x, y: (x.add_(1) * y, x))
    for same in (True, False, True):
        x = torch.ones(2)
        y = x if same else torch.ones(2)
        found, returned = program(x, y)
        assert returned is x
        assert found.tolist() == ([4.0, 4.0] if same else [2.0, 2.0])
    assert len(program.entries) == 2


def test_source_lines_and_names() -> None:
    program = compiled(lambda tree: tree["weight"] + 1)
    program({"weight": torch.ones(2)})
    text = str(thunder.last_traces(program)[0])
    assert "# model.txt:3 in layer" in text
    assert "torch.add(args_0_weight, 1)" in text


def _uses_another(x: Any) -> Any:
    return x + torch.utils._pytree.tree_leaves(_OUTSIDE)[0]


_OUTSIDE = [torch.ones(2)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * x.sum().item(), "needs the values of tensors"),
        (lambda x: x[x > 0], "needs the values of tensors"),
        (_uses_another, "that is no input and that no recorded call computed"),
        (lambda x: x.set_(torch.zeros(2)), "gives args_0 another storage"),
        (lambda x: x.unsqueeze_(0) * 2, "gives args_0, which is an input, another shape"),
    ],
)
def test_calls_that_are_refused(function: Any, message: str) -> None:
    state = torch.get_rng_state()
    with pytest.raises(UnsupportedError, match=message) as raised:
        compiled(function)(torch.ones(2))
    assert "model.txt:3" in str(raised.value)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_paths_of_the_program_itself() -> None:
    class Scale:
        def __init__(self) -> None:
            self.factors = [torch.ones(()), torch.full((), 2.0)]

        def __call__(self, x: Any) -> Any:
            return x * self.factors[1]

    class Of:
        def record(self, function: Any, args: Any, kwargs: Any, request: Any) -> Any:
            path = ItemSource(AttributeSource(FunctionSource(function, "scale"), "factors"), 1)
            return record_call(torch.mul, [(ArgumentSource(0, "x"), args[0]), (path, function.factors[1])])

    scale = Scale()
    program = ThunderFunction(scale, replace(settings_of(None, executors=[]), front_end=Of()))
    x = torch.ones(2)
    assert program(x).tolist() == [2.0, 2.0]
    scale.factors[1] = torch.full((), 5.0)
    assert program(x).tolist() == [5.0, 5.0]
    assert len(program.entries) == 1
