"""Hooks, and other functions for PyTorch, that programs make: each call has its own, over the values of that call."""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import AcquisitionError, UncacheableWarning


@dataclass
class Factor:
    value: Any

    def of(self, gradient: Tensor) -> Tensor:
        return gradient * self.value

    def __call__(self, gradient: Tensor) -> Tensor:
        self.value = self.value + 1
        return gradient * self.value


class Applied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.function(gradients[0]), None


GLOBAL = [Factor(2.0)]


def _hooked(make: Callable[[Tensor, Any], Any]) -> Callable[[Tensor, Any], Tensor]:
    def program(x: Tensor, o: Any) -> Tensor:
        y = x.sin()
        y.register_hook(make(x, o))
        return y * 2

    return program


def _counting(x: Tensor, o: Any) -> Tensor:
    y, count = x.sin(), 0

    def one(gradient: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return gradient * count

    def other(gradient: Tensor) -> Tensor:
        nonlocal count
        count += 2
        return gradient * count + o.value

    y.register_hook(one)
    y.register_hook(other)
    return y * 2


def _leaf(x: Tensor, o: Any) -> Tensor:
    x.register_hook(lambda gradient: gradient + o.value)
    return x.sin()


def _accumulated(x: Tensor, o: Any) -> Tensor:
    def hook(leaf: Tensor) -> None:
        leaf.grad.add_(o.value)  # type: ignore[union-attr]

    x.register_post_accumulate_grad_hook(hook)
    return x.sin()


def _in_a_region(x: Tensor, o: Any) -> Tensor:
    return checkpoint(_hooked(lambda _, o: lambda gradient: gradient * o.value), x, o, use_reentrant=False)


def _of_a_module(x: Tensor, o: Any) -> Tensor:
    module = nn.Tanh()
    module.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * o.value,))
    return module(x * 2)


def _in_a_loop(x: Tensor, o: Any) -> Tensor:
    y = x.sin()
    for power in range(3):
        y.register_hook(lambda gradient, power=power: gradient * o.value**power)
    return y


def _computed(x: Tensor, o: Any) -> Tensor:
    y, z = x.sin(), x.detach() * 2
    y.register_hook(lambda gradient: gradient + z * o.value)
    return y


def _written_after(x: Tensor, o: Any) -> Tensor:
    y = x.sin()
    y.register_hook(lambda gradient: gradient + o.value)
    o.value.add_(1)
    return y


def _without_a_value(x: Tensor, o: Any) -> Tensor:
    def hook(gradient: Tensor) -> Tensor:
        return gradient * o.value if o.value is not None else absent

    y = x.sin()
    y.register_hook(hook)
    if o is None:
        absent = x
    return y


def _scaled(factors: dict[str, Tensor], terms: list[Tensor], x: Tensor) -> Tensor:
    return x * factors["a"] + terms[0]


PROGRAMS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "variable": _hooked(lambda x, o: lambda gradient: gradient + o.value),
    "tensor": _hooked(lambda x, o: functools.partial(lambda tensor, gradient: gradient * tensor, o.value)),
    "default": _hooked(lambda x, o: lambda gradient, o=o.value: gradient + o),
    "keyword default": _hooked(lambda x, o: _with_keyword_default(o.value)),
    "partial": _hooked(lambda x, o: functools.partial(torch.add, o.value)),
    "bound method": _hooked(lambda x, o: o.of),
    "object made inside": _hooked(lambda x, o: Factor(o.value)),
    "method of one": _hooked(lambda x, o: Factor(o.value).of),
    "function in a function": _hooked(lambda x, o: (lambda inner: lambda g: inner(g) * 2)(lambda g: g * o.value)),
    "tuple": _hooked(lambda x, o: (lambda pair: lambda g: g * pair[0] + pair[1])((o.value, 2))),
    "dictionary": _hooked(lambda x, o: (lambda d: lambda g: g * d["a"] + d["b"][1])({"a": o.value, "b": [1, 2]})),
    "of computed tensors": _hooked(lambda x, o: (lambda d: lambda g: g * d["a"][0])({"a": [x.detach() * o.value]})),
    "ordered": _hooked(lambda x, o: (lambda d: lambda g: g * sum(d.values()))(collections.OrderedDict(a=o.value, b=2))),
    "view": _hooked(lambda x, o: (lambda v: lambda g: g * sum(v))({"a": o.value, "b": 2}.values())),
    "set": _hooked(lambda x, o: (lambda s: lambda g: g * len(s))({"a", "b"})),
    "without a value": _without_a_value,
    "global object": _hooked(lambda x, o: (lambda found: lambda g: g * found.value)(GLOBAL[0])),
    "plain function": _hooked(lambda x, o: torch.neg),
    "counting": _counting,
    "leaf": _leaf,
    "accumulated": _accumulated,
    "in a region": _in_a_region,
    "module": _of_a_module,
    "in a loop": _in_a_loop,
    "written after": _written_after,
    "computed": _computed,
    "inside backward": lambda x, o: torch.autograd.grad(PROGRAMS["variable"](x, o).sum(), x)[0],
    "applied": lambda x, o: Applied.apply(x, lambda value: value * o.value),
    "applied dictionary": lambda x, o: Applied.apply(x, functools.partial(_scaled, {"a": o.value}, [x.detach() * 2])),
    "applied object": lambda x, o: Applied.apply(x, Factor(o.value).of),
}


def _with_keyword_default(value: Tensor) -> Any:
    def hook(gradient: Tensor, *, factor: Tensor = value) -> Tensor:
        return gradient * factor

    return hook


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_call_has_its_own(name: str) -> None:
    def outcome(program: Callable[[Tensor, Any], Tensor]) -> list[Any]:
        found: list[Any] = []
        for call in range(3):
            GLOBAL[0] = Factor(2.0 + call)
            x, o = torch.arange(1.0, 4.0).requires_grad_(), Factor(torch.full((3,), 1.0 + call))
            result = program(x, o)
            if result.requires_grad:
                result.sum().backward()
            found += [result.detach(), x.grad, o.value]
        return found

    expected, compiled = outcome(PROGRAMS[name]), thunder.jit(PROGRAMS[name])
    torch.testing.assert_close(outcome(compiled), expected, rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == (2 if name == "global object" else 1)


def test_it_is_the_function_that_the_program_returns() -> None:
    def program(x: Tensor, o: Tensor) -> Any:
        hook = lambda gradient: gradient * o  # noqa: E731
        y = x.sin()
        y.register_hook(hook)
        return y, hook

    compiled = thunder.jit(program)
    for factor in (2.0, 3.0):
        _, hook = compiled(torch.ones(2, requires_grad=True), torch.full((2,), factor))
        assert torch.equal(hook(torch.ones(2)), torch.full((2,), factor))


def _appends(x: Tensor) -> Any:
    y, seen = x.sin(), list[Tensor]()
    y.register_hook(seen.append)
    return y, seen


def _assigned_later(x: Tensor) -> Tensor:
    y = x.sin()
    for factor in (2, 3):
        y.register_hook(lambda gradient: gradient * factor)  # noqa: B023 - what is tested
    return y


def _changed_later(x: Tensor) -> Tensor:
    y, factor = x.sin(), Factor(2)
    y.register_hook(factor.of)
    factor.value = 3
    return y


def _of_a_class(x: Tensor) -> Tensor:
    class Held:
        tensor = x.detach() + 1

        def of(self, gradient: Tensor) -> Tensor:
            return gradient * self.tensor

    y = x.sin()
    y.register_hook(Held().of)
    return y


def _caches(x: Tensor) -> Tensor:
    y, factor = x.sin(), functools.lru_cache(lambda: x.detach() * 2)
    y.register_hook(lambda gradient: gradient * factor())
    return y


def _shares_a_variable(x: Tensor) -> Any:
    y, count = x.sin(), 0

    def hook(gradient: Tensor) -> None:
        nonlocal count
        count += 1

    y.register_hook(hook)
    return y, lambda: count


@pytest.mark.parametrize(
    "program",
    [
        _of_a_class,
        _caches,
        _appends,
        _assigned_later,
        _changed_later,
        _shares_a_variable,
    ],
)
def test_what_calls_cannot_have_of_their_own_runs_eagerly(program: Callable[..., Any]) -> None:
    def outcome(run: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        for call in range(3):
            x = torch.full((3,), 1.0 + call, requires_grad=True)
            result = run(x)
            y, rest = result if isinstance(result, tuple) else (result, None)
            y.sum().backward()
            found += [y.detach(), x.grad, rest() if callable(rest) else rest]
        return found

    with pytest.warns(UncacheableWarning, match=r"to PyTorch"):
        torch.testing.assert_close(outcome(thunder.jit(program)), outcome(program), rtol=0, atol=0)


def test_a_container_that_a_function_changes_is_the_one_that_the_program_returns() -> None:
    def program(x: Tensor) -> Any:
        y, seen = x.sin(), {"calls": [0]}

        def hook(gradient: Tensor) -> None:
            seen["calls"].append(len(seen))
            seen["last"] = [1]

        y.register_hook(hook)
        return y, seen

    compiled = thunder.jit(program)
    for _ in range(2):
        y, seen = compiled(torch.ones(3, requires_grad=True))
        y.sum().backward()
        assert seen == {"calls": [0, 1], "last": [1]}
    assert thunder.cache_hits(compiled) == 1


def test_a_container_of_computed_tensors_that_the_program_returns_runs_eagerly() -> None:
    def program(x: Tensor) -> Any:
        y, seen = x.sin(), [x.detach() * 2]
        y.register_hook(lambda gradient: seen.append(gradient))
        return y, seen

    def lengths(run: Callable[..., Any]) -> list[int]:
        results = [run(torch.ones(3, requires_grad=True)) for _ in range(2)]
        torch.stack([y for y, _ in results]).sum().backward()
        return [len(seen) for _, seen in results]

    with pytest.warns(UncacheableWarning, match="returns or stores a list"):
        assert lengths(thunder.jit(program)) == [2, 2]


_STATE = vars(nn.modules.module)
_REGISTER = {name: function for name, function in _STATE.items() if name.startswith("register_module_")}


@pytest.mark.parametrize("end", ["ends", "is refused", "raises"])
@pytest.mark.parametrize("name", _REGISTER)
@pytest.mark.slow
def test_hooks_of_all_modules_are_not_set_inside(monkeypatch: pytest.MonkeyPatch, name: str, end: str) -> None:
    """And none stays."""
    # PyTorch never resets which kind of backward hooks all modules have, and refuses the other kind.
    monkeypatch.setattr(nn.modules.module, "_global_is_full_backward_hook", None)

    def program(x: Tensor) -> Tensor:
        handle.append(_REGISTER[name](lambda *args: None))
        y = nn.Tanh()(x)
        if end == "is refused":
            y = x[x > 0]
        if end == "raises":
            raise ValueError("mine")
        return y

    handle: list[Any] = []
    before = {key: copy.copy(value) for key, value in _STATE.items() if key.startswith("_global")}
    with pytest.raises((AcquisitionError, ValueError)) as raised:
        thunder.jit(program)(torch.ones(3))
    assert {key: value for key, value in _STATE.items() if key in before} == before
    if end == "ends":
        assert "hook of all modules" in str(raised.value)
