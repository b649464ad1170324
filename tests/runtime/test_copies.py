"""Copies of tensors that a program makes, and how often their memory was written."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder
from thunder_core.errors import UnsupportedError

PARAMETER = nn.Parameter(torch.arange(3.0))


def _described(x: Tensor) -> Any:
    copied = copy.deepcopy(x)
    return copied * 2, copied.requires_grad, copied.is_leaf, copied.stride(), type(copied) is type(x), copied is x


def _without_graph(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
    return copy.deepcopy(y) + 1


def _caught(x: Tensor) -> Any:
    y = x * 2
    try:
        return copy.deepcopy(y)
    except RuntimeError as error:
        return y, str(error)


def _containers(x: Tensor) -> Any:
    copied = copy.deepcopy({"one": x, "more": [x, x.detach() * 2]})
    return copied["one"] * 3, copied["more"][0] is copied["one"], copied["more"][1]  # type: ignore[index]


def _with_attributes(x: Tensor) -> Any:
    x.note = [1, 2]  # type: ignore[attr-defined]
    copied: Any = copy.deepcopy(x)
    note = getattr(copied, "note", None)
    return note, note is x.note, copied + 1  # type: ignore[attr-defined]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "argument": _described,
    "result": lambda x: copy.deepcopy(x * 2) + 1,
    "caught": _caught,
    "without graph": _without_graph,
    "transposed": lambda x: _described((x.detach() * torch.ones(2, 1)).t()),
    "containers": _containers,
    "attributes": _with_attributes,
    "parameter": lambda x: (*_described(PARAMETER)[1:], copy.deepcopy(PARAMETER) * x),
    "version": lambda x: (x * 2, x._version, x[1:]._version, (x * 2)._version),
    "version after a write": lambda x: (x._version, x.detach().add_(1), x._version),
}


def _outcome(program: Callable[[Tensor], Any], x: Tensor) -> Any:
    try:
        result = program(x)
    except RuntimeError as error:
        return repr(error)
    leaves = [leaf for leaf in (result if isinstance(result, tuple) else (result,)) if isinstance(leaf, Tensor)]
    if any(leaf.requires_grad for leaf in leaves):
        torch.stack([leaf.sum() for leaf in leaves]).sum().backward()
    return result, x.grad


def _inputs() -> list[Tensor]:
    written = torch.arange(3.0)
    written.add_(1).mul_(2)
    return [torch.arange(3.0), torch.arange(3.0).requires_grad_(), written, nn.Parameter(torch.ones(3))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for x, other in zip(_inputs() * 2, _inputs() * 2, strict=True):
        expected, found = _outcome(PROGRAMS[name], x), _outcome(compiled, other)
        assert _plain(found) == _plain(expected)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return (value.tolist(), value.requires_grad, value.stride()) if isinstance(value, Tensor) else repr(value)


def test_other_memory_is_no_other_program() -> None:
    compiled = thunder.jit(_described)
    held = [torch.arange(3.0) for _ in range(4)]
    for x in held:
        compiled(x)
    assert thunder.cache_misses(compiled) == 1


def _shared(x: Tensor) -> Any:
    return copy.deepcopy((x, x.view(-1)))


@pytest.mark.parametrize(
    "program",
    [_shared, lambda x: copy.deepcopy(x[1:]), lambda x: copy.deepcopy(x.expand(2, 3)), lambda x: copy.deepcopy(x[::2])],
)
def test_copies_of_parts_of_a_memory_are_refused(program: Callable[[Tensor], Any]) -> None:
    with pytest.raises(UnsupportedError, match="deepcopy of"):
        thunder.jit(program)(torch.arange(3.0))


def test_what_a_copy_depends_on_is_guarded() -> None:
    compiled = thunder.jit(_described)
    x = torch.arange(3.0)
    compiled(x)
    for other in (torch.arange(6.0)[:3], torch.arange(6.0)[::2]):
        with pytest.raises(UnsupportedError, match="deepcopy of"):
            compiled(other)
    x.grad = torch.ones(3)
    with pytest.raises(UnsupportedError, match="has a gradient"):
        compiled(x)


def _shallow(x: Tensor) -> Any:
    y = x * 2
    copies = copy.copy(y), copy.copy(x), copy.copy([y, x])
    with torch.no_grad():
        copies[0].add_(1)
    return copies[0] * 2, copies[1] * 3, copies[0].is_leaf, copies[1] is x, copies[2][1] is x, y.detach() * 1


def _shallow_and_written(x: Tensor) -> Any:
    y = x.detach() * 2
    y.note = "kept"  # type: ignore[attr-defined]
    copied = copy.copy(y)
    copied.mul_(3)
    return y, copied, copied.note, copied is y  # type: ignore[attr-defined]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", [_shallow, _shallow_and_written])
def test_shallow_copies(program: Callable[..., Any], grad: bool, check_gradients: Callable[..., None]) -> None:
    check_gradients(program, lambda: (torch.arange(3.0).requires_grad_(grad),))


class Counting(nn.Linear):
    """Its copy is a new module with other parameters at first, and is counted."""

    made = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Counting:
        Counting.made += 1
        copied = Counting(self.in_features, self.out_features)
        copied.load_state_dict(self.state_dict())
        return copied


class Timed(nn.Linear):
    """Its state has the time of the copy."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "copied_at": time.time()}


class Refusing(nn.Linear):
    """As modules with parametrizations."""

    def __getstate__(self) -> Any:
        raise RuntimeError("copy its state_dict")


class Experts(nn.Module):
    """Each expert gets the rows that it selects."""

    def __init__(self, kind: type[nn.Linear]) -> None:
        super().__init__()
        self.experts = nn.ModuleList([kind(4, 4), kind(4, 4)])
        self.first = self.experts[0]

    def forward(self, x: Tensor) -> Tensor:
        result = self.first(x) * Counting.made
        for expert in self.experts:
            rows = torch.where(expert(x)[:, 0] > 0)[0]
            result = result.index_add(0, rows, expert(x[rows]))
        return result


@pytest.mark.parametrize("kind", [nn.Linear, Counting, Timed, Refusing])
def test_a_copy_that_thunder_makes_is_not_the_programs(kind: type[nn.Linear]) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(4, 4), Experts(kind)
    module = nn.Sequential(*layers)
    compiled = thunder.jit(module)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(6, 4)
        gradients = []
        for call in (module, compiled):
            call.zero_grad()
            torch.manual_seed(seed)
            result = call(x)
            result.sum().backward()
            gradients.append([result, torch.rand(2), *[parameter.grad for parameter in call.parameters()]])
        assert all(map(torch.equal, *gradients))
    assert thunder.cache_misses(compiled) == 1
    assert Counting.made == 0
    assert "call_module" in str(thunder.last_traces(compiled)[0])
