"""What a program does while it is recorded for the first time is taken back when it has to be recorded again."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from tests.subjects import SUBJECT, eager
from thunder_core.errors import UnsupportedError

pytestmark = pytest.mark.skipif(SUBJECT is eager, reason="about recording")


def gradient(weight: torch.Tensor) -> torch.Tensor:
    """Recording starts again where the program computes gradients."""
    return torch.autograd.grad((weight * weight).sum(), weight)[0]


GENERATORS: dict[str, Callable[[], Callable[[], float]]] = {
    "random": lambda: random.random,
    "numpy": lambda: numpy.random.random,
    "Random": lambda: random.Random(1).random,
    "Generator": lambda: numpy.random.default_rng(1).random,
    "RandomState": lambda: numpy.random.RandomState(1).random_sample,
}


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("name", GENERATORS)
def test_random_generators_draw_once(name: str) -> None:
    def values(wrap: Callable[[Any], Any]) -> Iterator[float]:
        random.seed(0)
        numpy.random.seed(0)
        draw, weight = GENERATORS[name](), torch.ones(2, requires_grad=True)
        program = wrap(lambda x: x * draw() + gradient(weight))
        for _ in range(3):
            yield program(torch.ones(2)).tolist()
            yield draw()

    assert list(values(SUBJECT)) == list(values(lambda function: function))


def numbers() -> Callable[[], float]:
    items = iter([1.0, 2.0, 3.0])
    return lambda: next(items)


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("following", ["iterator", "file"])
def test_what_cannot_go_back_is_refused(following: str, tmp_path: Path) -> None:
    path, weight = tmp_path / "numbers", torch.ones(2, requires_grad=True)
    path.write_text("1\n2\n3\n")
    with path.open() as file:
        step = numbers() if following == "iterator" else lambda: float(file.readline())
        program = SUBJECT(lambda x: x * step() + gradient(weight))
        with pytest.raises(UnsupportedError, match="recorded a second time") as raised:
            program(torch.ones(2))
    assert "has advanced in the first" in str(raised.value)


class Stream(io.StringIO):
    """A class whose methods are those of a base class in C."""


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("kind", [io.StringIO, Stream])
def test_a_stream_in_memory_is_read_once(kind: type[io.StringIO]) -> None:
    def values(wrap: Callable[[Any], Any]) -> Iterator[Any]:
        file, weight = kind("1\n2\n3\n4\n"), torch.ones(2, requires_grad=True)
        program = wrap(lambda x: x * float(file.readline()) + gradient(weight))
        for _ in range(2):
            yield program(torch.ones(2)).tolist()
            yield file.tell()

    assert list(values(SUBJECT)) == list(values(lambda function: function))


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_a_stream_that_the_program_creates() -> None:
    def program(x: torch.Tensor, *, times: int) -> tuple[str, bytes, float]:
        text, data = io.StringIO(), io.BytesIO(b"abc")
        for _ in range(times):
            text.write("a")
        print(x.shape, file=text)
        return text.getvalue(), data.read(2), float(x.sum())

    compiled = SUBJECT(program)
    for x, times in [(torch.ones(2), 1), (torch.ones(2), 2), (torch.ones(2) * 3, 2)]:
        assert compiled(x, times=times) == program(x, times=times)


def _writes(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        sys.stdout.write("a")
        sys.stderr.write("b")
        return x + gradient(weight)

    return program


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_standard_streams_in_memory_are_written_in_each_call() -> None:
    program, x = SUBJECT(_writes(torch.ones(2, requires_grad=True))), torch.ones(2)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        for _ in range(3):
            program(x)
    assert (out.getvalue(), err.getvalue()) == ("aaa", "bbb")


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_standard_input_in_memory_is_read_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    program = SUBJECT(lambda x: x * float(sys.stdin.readline()))
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n3\n"))
    assert [program(torch.ones(1)).item() for _ in range(3)] == [1.0, 2.0, 3.0]


@functools.lru_cache
def cached(x: torch.Tensor) -> torch.Tensor:
    """A function because of which the whole program runs eagerly."""
    return x * 2


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("name", GENERATORS)
def test_random_generators_draw_once_in_eager_calls(name: str) -> None:
    def values(wrap: Callable[[Any], Any]) -> Iterator[float]:
        random.seed(0)
        numpy.random.seed(0)
        draw = GENERATORS[name]()
        program = wrap(lambda x: cached(x) * draw())
        for _ in range(3):
            yield program(torch.ones(2)).tolist()
            yield draw()

    assert list(values(SUBJECT)) == list(values(lambda function: function))


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_an_eager_call_cannot_follow_an_advanced_iterator() -> None:
    step = numbers()
    with pytest.raises(UnsupportedError, match="items may have advanced meanwhile"):
        SUBJECT(lambda x: step() * cached(x))(torch.ones(2))


class Keeps:
    """Has an iterator, and what programs store."""

    def __init__(self) -> None:
        self.items = map(abs, [1, 2])
        self.kept: Any = None


def test_the_refusal_of_an_eager_call_says_why() -> None:
    def program(x: torch.Tensor, holder: Keeps) -> torch.Tensor:
        holder.kept = torch.nn.ReLU()
        return x * next(holder.items)

    with pytest.raises(
        UnsupportedError, match=r"creates \(ReLU, at .*test_second_recording.py.* in .*program: "
    ) as raised:
        SUBJECT(program)(torch.ones(2), Keeps())
    assert "holder.items may have advanced" in str(raised.value)
