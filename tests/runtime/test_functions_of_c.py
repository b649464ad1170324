"""Functions of C under names of the program's own: a Python program calls them as it calls any others."""

from __future__ import annotations

import functools
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder
from thunder_core.errors import UnsupportedError


class Triple(torch.autograd.Function):
    """Its gradient is not that of what its forward computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * 5


class Image(Tensor):
    pass


class OnClass:
    say = print
    apply = Triple.apply


class InSlots:
    __slots__ = ("apply", "say")

    def __init__(self) -> None:
        self.say, self.apply = print, Triple.apply


class Module(torch.nn.Module):
    apply_function = Triple.apply

    def __init__(self) -> None:
        super().__init__()
        self.functions = [print]

    def forward(self, x: Tensor) -> Tensor:
        self.functions[0](x.detach().sum())
        return self.apply_function(x)


Functions = namedtuple("Functions", ("say", "apply"))
say, apply = print, Triple.apply
partial_say = functools.partial(print, "partial")
in_slots = InSlots()
namespace = types.SimpleNamespace(say=print, apply=Triple.apply)
mapping = {"say": print, "apply": [Triple.apply]}
functions = (print, Triple.apply)
named = Functions(print, Triple.apply)


def of_closure() -> Callable[[Tensor], Tensor]:
    log, function = print, Triple.apply

    def program(x: Tensor) -> Tensor:
        log(x.detach())
        return function(x)

    return program


def with_defaults(x: Tensor, log: Any = print, *, function: Any = Triple.apply) -> Tensor:
    log(x.detach())
    return function(x)


def shown(say: Any, apply: Any, x: Tensor) -> Tensor:
    say(x.detach())
    result: Tensor = apply(x)
    return result


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "global": lambda x: shown(say, apply, x),
    "closure": of_closure(),
    "attribute of a class": lambda x: shown(OnClass.say, OnClass().apply, x),
    "slot": lambda x: shown(in_slots.say, in_slots.apply, x),
    "attribute": lambda x: shown(namespace.say, namespace.apply, x),
    "dictionary": lambda x: shown(mapping["say"], mapping["apply"][0], x),  # type: ignore[index]
    "tuple": lambda x: shown(functions[0], functions[1], x),
    "named tuple": lambda x: shown(named.say, named.apply, x),
    "defaults": lambda x: with_defaults(x),
    "root with defaults": with_defaults,
    "module": Module(),
    "map": lambda x: (list(map(say, ["text", x.detach()])), *map(apply, [x])),
    "partial": lambda x: (partial_say(x.detach()), Triple.apply(x)),
}


def compared(function: Callable[..., Any], value: float, capsys: pytest.CaptureFixture[str], *args: Any) -> list[Any]:
    x = torch.full((2,), value, requires_grad=True)
    result = function(x, *args)
    for leaf in result if isinstance(result, tuple) else (result,):
        if isinstance(leaf, Tensor):
            leaf.sum().backward()
    return [str(result), x.grad, capsys.readouterr().out]


@pytest.mark.parametrize("name", PROGRAMS)
def test_under_another_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    compiled: Any = thunder.jit(PROGRAMS[name])
    for value in (1.0, 2.0, 3.0):
        actual = compared(compiled, value, capsys)
        assert torch.equal(actual[1], torch.full((2,), 5.0))
        assert actual[2] == compared(PROGRAMS[name], value, capsys)[2] != ""
    assert thunder.cache_misses(compiled) == 1
    held = [say, OnClass.say, in_slots.say, namespace.say, mapping["say"], functions[0], named.say, partial_say.func]
    assert all(function is print for function in held)
    assert with_defaults.__defaults__ == (print,)
    assert vars(OnClass)["say"] is print


def test_as_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor, say: Any, *more: Any, **named: Any) -> Tensor:
        say(more[0][0](x * 2).detach())
        return named["function"](x)

    compiled: Any = thunder.jit(program)
    for value in (1.0, 2.0):
        results = []
        for function in (program, compiled):
            x = torch.full((2,), value, requires_grad=True)
            function(x, print, (Triple.apply,), function=Triple.apply).sum().backward()
            results.append((x.grad, capsys.readouterr().out))
        assert torch.equal(results[0][0], results[1][0])
        assert results[0][1] == results[1][1]


def test_as_subclass_under_another_name() -> None:
    as_subclass = Tensor.as_subclass
    compiled = thunder.jit(lambda x: as_subclass(x * 2, Image))
    for value in (1.0, 2.0):
        result = compiled(torch.full((2,), value))
        assert type(result) is Image
        assert result.tolist() == [2 * value] * 2


def test_a_name_that_the_program_gives_another_function(capsys: pytest.CaptureFixture[str]) -> None:
    held = {"say": print}

    def program(x: Tensor) -> Tensor:
        held["say"](x)
        held["say"] = len  # type: ignore[assignment]
        return x * 2

    compiled = thunder.jit(program)
    for value in (1.0, 2.0):
        held["say"] = print
        compiled(torch.full((2,), value))
        assert held["say"] is len
        assert capsys.readouterr().out == f"tensor([{value:.0f}., {value:.0f}.])\n"


def test_functions_as_results_and_stored() -> None:
    """What takes their place while the program is recorded stays inside."""
    holder = types.SimpleNamespace()

    def program(x: Tensor) -> Any:
        hash(one)
        holder.stored = [print, say, Triple.apply, hash]
        return x * 2, print, say, Triple.apply, hash, Tensor.as_subclass

    compiled = thunder.jit(program)
    for _ in range(2):
        compiled_results = compiled(torch.ones(2))[1:]
        compiled_stored = holder.stored
        assert compiled_results == program(torch.ones(2))[1:]
        assert compiled_stored == holder.stored


@pytest.mark.skipif(isinstance(vars(torch.autograd.Function)["apply"], classmethod), reason="apply is of Python")
@pytest.mark.parametrize(
    "call", [lambda apply, x: apply(x), lambda apply, x: next(map(apply, [x]))], ids=["called", "by map"]
)
def test_apply_that_only_a_set_holds_is_refused(call: Callable[[Any, Tensor], Tensor]) -> None:
    held = {Triple.apply}

    def program(x: Tensor) -> Tensor:
        for function in held:
            x = call(function, x)
        return x

    with pytest.raises(UnsupportedError, match=r"\.apply is called (from C )?through an alias"):
        thunder.jit(program)(torch.ones(2, requires_grad=True))


class Settings:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


settings = Settings(scale=2.0)
one, other = Settings(), Settings()
fetch, has, content, names, identity, is_a, number, kind, variables = (
    getattr, hasattr, vars, dir, id, isinstance, hash, type, globals,
)  # fmt: skip
FACTOR = 2.0


def set_factor(value: float) -> None:
    globals()["FACTOR"] = value


READS: dict[str, tuple[Callable[..., Any], list[Callable[[], Any]]]] = {
    "getattr": (lambda x: x * fetch(settings, "sca" + "le"), [lambda: vars(settings).update(scale=3.0)]),
    "getattr by map": (
        lambda x: x * next(map(fetch, [settings], ["scale"])),
        [lambda: vars(settings).update(scale=4.0)],
    ),
    "hasattr": (lambda x: x + has(settings, "fl" + "ag"), [lambda: vars(settings).update(flag=1)]),
    "vars": (lambda x: x * content(settings)["sca" + "le"], [lambda: vars(settings).update(scale=5.0)]),
    "dir": (lambda x: x * len(names(settings)), [lambda: vars(settings).update(more=1)]),
    "globals": (lambda x: x * variables()["FAC" + "TOR"], [lambda: set_factor(3.0)]),
}


@pytest.mark.parametrize("name", READS)
def test_reads_under_another_name(name: str) -> None:
    program, changes = READS[name]
    compiled = thunder.jit(program)
    for change in (lambda: None, *changes):
        change()
        assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))


COMPARISONS: dict[str, Callable[..., Any]] = {
    "id": lambda x, a, b: x + (identity(a) == identity(b)),
    "hash": lambda x, a, b: x + (number(a) == number(b)),
    "isinstance": lambda x, a, b: x + is_a(a, Settings),
    "type": lambda x, a, b: x + (kind(a) is kind(b)),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_under_another_name(name: str) -> None:
    program = COMPARISONS[name]
    compiled = thunder.jit(program)
    for pair in ((one, one), (one, other), (other, other), (one, [1]), ([1], one)):
        if name != "hash" or [1] not in pair:
            assert torch.equal(compiled(torch.ones(2), *pair), program(torch.ones(2), *pair))


class Operations:
    operation: Any = torch.relu
    static: Any = staticmethod(torch.relu)


@pytest.mark.parametrize("made", [False, True], ids=["class", "object"])
@pytest.mark.parametrize("name", ["operation", "static"])
def test_functions_of_c_as_attributes_of_classes(name: str, made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Operations() if made else Operations
    programs = {"operation": lambda x: owner.operation(x), "static": lambda x: owner.static(x)}
    compiled: Any = thunder.jit(programs[name])
    x = torch.tensor([-1.0, 1.0])
    for function in (torch.relu, torch.sigmoid):
        monkeypatch.setattr(Operations, name, staticmethod(function) if name == "static" else function)
        assert torch.equal(compiled(x), function(x))
