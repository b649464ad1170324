"""Programs that end with an exception: what they wrote before is written once, and the exception is raised."""

from __future__ import annotations

import asyncio
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from tests.runtime.stateful import Box, Program, Wrap, outcomes


class Stop(Exception):
    """An exception with a tensor."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value


def X() -> torch.Tensor:
    """A new tensor."""
    return torch.arange(3.0)


def _raised(function: Callable[..., Any], *args: Any) -> Any:
    """The type and arguments of what a call raises, or its result."""
    try:
        return function(*args)
    except Exception as error:
        return type(error), error.args, list(getattr(error, "__notes__", ()))


PROGRAMS: dict[str, Program] = {}


def case(program: Program) -> Program:
    """Add a program."""
    PROGRAMS[program.__name__] = program
    return program


@case
def attributes_and_containers(jit: Wrap) -> Iterator[Any]:
    box, log, table = Box(), [], {"n": 0}

    def f(x: torch.Tensor, fail: bool) -> torch.Tensor:
        box.n += 1
        box.last = x * 2
        log.append(x + 1)
        table["n"] = len(log)
        if fail:
            raise ValueError("mine", box.n)
        return x * 3

    g = jit(f)
    for fail in (True, False, True, False, False, True):
        yield _raised(g, X() + len(log), fail), box, log, table


@case
def tensors_in_place(jit: Wrap) -> Iterator[Any]:
    total = torch.zeros(3)
    weight = torch.ones(3, requires_grad=True)

    def f(x: torch.Tensor) -> None:
        total.add_(x)
        x.mul_(2)
        (x * weight).sum().backward()
        raise KeyError("key")

    g = jit(f)
    for _ in range(3):
        x = X()
        yield _raised(g, x), x, total, weight.grad


@case
def stored_with_a_graph(jit: Wrap) -> Iterator[Any]:
    box = Box()
    weight = torch.ones(3, requires_grad=True)

    def f(x: torch.Tensor) -> None:
        box.loss = (x * weight).sum()
        raise Stop(1)

    yield _raised(jit(f), X())
    box.loss.backward()
    yield weight.grad


@case
def tensors_in_the_exception(jit: Wrap) -> Iterator[Any]:
    def f(x: torch.Tensor) -> None:
        raise Stop({"y": x * 2})

    g = jit(f)
    for shift in range(2):
        try:
            g(X() + shift)
        except Stop as stop:
            yield stop.value, stop.args[0] is stop.value


@case
def a_module(jit: Wrap) -> Iterator[Any]:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.seen = self.seen + x
            if x.shape[0] != 3:
                raise RuntimeError("shape")
            return x * self.seen

    model = Model()
    g = jit(model)
    for x in (X(), torch.ones(1), X(), torch.ones(1), torch.ones(2)):
        yield _raised(g, x), model.calls, model.seen


@case
def errors_of_pytorch(jit: Wrap) -> Iterator[Any]:
    log = []

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log.append(x.sum())
        return x @ y

    g = jit(f)
    for y in (torch.ones(3), torch.ones(4), torch.ones(3)):
        result = _raised(g, X(), y)
        yield result[0] if isinstance(result, tuple) else result
        yield log


@case
def clean_up(jit: Wrap) -> Iterator[Any]:
    log = []

    def f(x: torch.Tensor) -> None:
        try:
            with torch.no_grad():
                log.append("in")
                raise ValueError
        finally:
            log.append(x * 2)

    g = jit(f)
    for _ in range(2):
        yield _raised(g, X()), log, torch.is_grad_enabled()


@case
def modes(jit: Wrap) -> Iterator[Any]:
    def f(x: torch.Tensor) -> None:
        torch.set_grad_enabled(False)
        raise ValueError(str(x.shape))

    g = jit(f)
    for _ in range(2):
        try:
            yield _raised(g, X()), torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(True)


@case
def random_numbers_and_iterators(jit: Wrap) -> Iterator[Any]:
    random.seed(0)
    numbers = iter(range(10))
    log = []

    def f(x: torch.Tensor) -> None:
        log.append(random.random())
        log.append(next(numbers))
        log.append(torch.rand(2) + x[0])
        raise ValueError

    g = jit(f)
    for _ in range(3):
        yield _raised(g, X()), log, random.random(), torch.rand(1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    expected = outcomes(PROGRAMS[name], lambda f: f)
    assert outcomes(PROGRAMS[name], thunder.jit) == expected


def test_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> None:
        print("plain")
        print(x * 2)
        raise ValueError("mine")

    for function in (program, thunder.jit(program)):
        with pytest.raises(ValueError, match="mine"):
            function(X())
        assert capsys.readouterr().out == "plain\ntensor([0., 2., 4.])\n"


def test_traceback_shows_the_users_ops() -> None:
    def inner(x: torch.Tensor) -> None:
        raise ValueError("mine")

    def program(x: torch.Tensor) -> None:
        inner(x * 2)

    with pytest.raises(ValueError, match="mine") as raised:
        thunder.jit(program)(X())
    names = [entry.name for entry in raised.traceback]
    assert names[-2:] == ["program", "inner"]
    assert names.count("inner") == 1
    assert raised.value.__context__ is None


def test_entries_stay() -> None:
    """A call that raises makes no entry, and does not touch the others."""

    def program(x: torch.Tensor, fail: bool) -> torch.Tensor:
        if fail:
            raise ValueError("mine")
        return x * 2

    compiled = thunder.jit(program)
    compiled(X(), False)
    for _ in range(3):
        with pytest.raises(ValueError, match="mine"):
            compiled(X(), True)
        compiled(X(), False)
    assert thunder.cache_hits(compiled) == 3
    assert len(thunder.last_traces(compiled)[0].output) == 1


def test_the_exception_says_what_is_lost() -> None:
    """Where the lines before it cannot run, the exception is raised with a note, and nothing is written."""
    box = Box()

    def region(x: torch.Tensor) -> torch.Tensor:
        box.n += 1
        x = x * 2
        raise ValueError("mine")

    def program(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(region, x, use_reentrant=False)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("mine")

    def other(x: torch.Tensor) -> torch.Tensor:
        box.n += 1
        return Function.apply(x)

    for failing in (program, other):
        with pytest.raises(ValueError, match="mine") as raised:
            thunder.jit(failing)(X().requires_grad_())
        assert box.n == 0
        (note,) = raised.value.__notes__
        assert "checkpoint" in note


def test_an_exception_of_a_line_says_what_is_lost() -> None:
    """Lines run before the writes, which come last; recording could not know that the line would fail."""
    box = Box()

    def program(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        box.n += 1
        return x[index]

    compiled = thunder.jit(program)
    compiled(X(), torch.tensor([0]))
    with pytest.raises(IndexError, match="out of bounds") as raised:
        compiled(X(), torch.tensor([7]))
    assert box.n == 1
    assert "is not all written, as a line of the compiled program raised it" in raised.value.__notes__[0]


def test_an_exception_of_a_line_has_no_such_note_where_nothing_is_written() -> None:
    compiled = thunder.jit(lambda x, index: x[index])
    with pytest.raises(IndexError, match="out of bounds") as raised:
        compiled(X(), torch.tensor([7]))
    assert not any("is not all written" in note for note in raised.value.__notes__)


def _at_least_warned(x: torch.Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("mine", stacklevel=1)


EXPRESSIONS = (
    *("min([])", "max([])", "bool(x)", "x.item()", "float(x)", "int(x)", "[x] == [1]", "1 in [x]", "not x", "x and 1"),
    *("range(x)", "max(x, 1)", "[1, 2][x]", "len(x.sum())", "list(x.sum())", "f'{x:.3f}'", "'%d' % x", "x.foo"),
    *("math.sqrt(-1)", "math.isnan('a')", "print('a', sep=1)", "hash([])", "isinstance(x, 3)", "getattr(x, 'foo')"),
    *("len(3)", "int('a')", "[][0]", "{}['a']", "0 ** -1", "next(iter([]))", "sorted([1, 'a'])", "sum(['a'])"),
    *("__import__('no_such_module')", "open('/no/such/file')", "exec('assert False')", "eval('(')", "divmod(1, 0)"),
    *("torch.from_numpy(3)", "torch.tensor('a')", "torch.cat([])", "torch.stack([x, x[1:]])", "x.view(7)", "x[9]"),
    *(
        "x + 'a'",
        "x @ torch.ones(9, 9)",
        "x.requires_grad_().numpy()",
        "x.sum().backward()",
        "torch.nn.Linear(9, 2)(x)",
    ),
    *("torch.autograd.grad(x.sum(), x)", "torch.nn.Linear(2, 2).foo", "F.cross_entropy(x, x.long() + 9)"),
    *("sys.exit(3)", "stop(KeyboardInterrupt('mine'))", "stop(GeneratorExit())", "stop(asyncio.CancelledError())"),
    "warned(x)",
)


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.battery
def test_effects_before_any_exception(expression: str) -> None:
    """The exception of eager, of whatever raises it, after the same writes, at each call."""

    def stop(error: BaseException) -> None:
        raise error

    names = {"F": torch.nn.functional, "asyncio": asyncio, "math": math, "sys": sys, "torch": torch, "stop": stop}
    names["warned"] = _at_least_warned
    source = f"def program(x):\n    box.n += 1\n    written.add_(x)\n    return {expression}\n"

    def calls(wrap: Wrap) -> list[Any]:
        box, written = Box(), torch.zeros(3)
        namespace = {**names, "box": box, "written": written}
        exec(source, namespace)
        program = wrap(namespace["program"])
        found = []
        for _ in range(2):
            try:
                program(X())
            except BaseException as error:
                found.append((type(error), str(error).partition("\n")[0], box.n, written.tolist()))
        return found

    expected = calls(lambda function: function)
    assert len(expected) == 2
    assert calls(thunder.jit) == expected


def test_an_exception_that_each_call_raises_again(jit: Wrap) -> None:
    stop = Stop(2.0)

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            for _ in range(3):
                x = x * stop.value
                if x.ndim == 1:
                    raise stop
        except Stop as caught:
            return x + caught.value
        return x

    compiled = jit(program)
    for value in (2.0, 2.0, 3.0):
        stop.value = value
        assert torch.equal(compiled(X()), program(X()))
    assert jit(program)(X()).equal(X() * 3 + 3)
    assert stop.__traceback__ is not None  # of eager's calls; it holds no frame of a recording
