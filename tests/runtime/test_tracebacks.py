"""Errors in a user's program show the user's frames, as in eager, while it is recorded and when it runs."""

from __future__ import annotations

import io
import pdb
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.errors import DataDependentError
from thunder_frontend.record.interception import replace_code
from thunder_frontend.record.op_writer import OpWriter
from thunder_testing.forked import run_forked

ROOT = Path(__file__).resolve().parents[2]


class Mine(Exception):
    """An exception with state."""

    def __init__(self, one: int, two: str) -> None:
        super().__init__(one, two)
        self.two = two


def fails(x: torch.Tensor, how: str) -> torch.Tensor:
    y = x * 2
    if how == "raise":
        error = Mine(1, "b")
        error.add_note("a note")
        raise error
    if how == "from":
        try:
            y.view(7, 7)
        except RuntimeError as error:
            raise Mine(2, "c") from error
    if how == "context":
        try:
            y.view(7, 7)
        finally:
            raise Mine(3, "d")
    if how == "shape":
        return y.view(7, 7)
    if how == "module":
        return nn.Linear(9, 9)(y)
    if how == "call":
        return nn.Linear(9, 9)()
    if how == "attribute":
        return y.absent
    if how == "type":
        return torch.add(y)
    return y.gather(0, x.long())


HOWS = ["raise", "from", "context", "shape", "module", "call", "attribute", "type", "index"]


def frames(error: BaseException) -> list[tuple[str, int, str]]:
    """Those below this file's own first frame."""
    entries = traceback.extract_tb(error.__traceback__)
    return [(entry.filename, entry.lineno or 0, entry.name) for entry in entries[1:]]


def raised(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("it raises")


def of_this_file(error: BaseException) -> list[tuple[str, int, str]]:
    return [frame for frame in frames(error) if frame[0] == __file__]


@pytest.mark.parametrize("how", HOWS)
def test_frames_are_those_of_eager(how: str) -> None:
    x = torch.tensor([1.0, 7.0])
    expected, got = raised(fails, x, how), raised(thunder.jit(fails), x, how)
    assert type(got) is type(expected)
    assert [str(item).replace("TracedTensor", "Tensor") for item in got.args] == list(map(str, expected.args))
    assert of_this_file(got) == of_this_file(expected)
    assert not [frame for frame in frames(got) if "thunder_core" in frame[0] or frame[0].startswith("<")]
    assert type(got.__cause__) is type(expected.__cause__)
    shown = None if got.__suppress_context__ and got.__cause__ is None else got.__context__
    assert type(shown) is type(expected.__context__)
    if how == "raise":
        assert isinstance(got, Mine)
        assert (got.two, got.__notes__) == ("b", ["a note"])
    if how in ("from", "context"):
        assert got.__context__ is not None
        assert expected.__context__ is not None
        inner = traceback.extract_tb(got.__context__.__traceback__)
        assert [(e.filename, e.lineno) for e in inner] == [
            (e.filename, e.lineno) for e in traceback.extract_tb(expected.__context__.__traceback__)
        ]


@pytest.mark.parametrize("how", ["raise", "module", "index"])
def test_all_frames_are_shown_on_request(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_TRACEBACK", "full")
    error = raised(thunder.jit(fails), torch.tensor([1.0, 7.0]), how)
    assert [frame for frame in frames(error) if "thunder_core" in frame[0]]


def test_a_cached_call_shows_the_users_line() -> None:
    table = torch.ones(3)
    compiled = thunder.jit(lambda i: (table * 2).gather(0, i) + 1)
    compiled(torch.tensor([1]))
    error = raised(compiled, torch.tensor([5]))
    assert thunder.cache_hits(compiled) == 1
    (frame,) = frames(error)
    assert frame[0] == __file__
    assert "gather" in (traceback.extract_tb(error.__traceback__)[-1].line or "")
    assert "t0" in error.__traceback__.tb_next.tb_frame.f_locals  # type: ignore[union-attr]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


@pytest.mark.parametrize("inner", [False, True])
def test_modules(inner: bool) -> None:
    net = thunder.jit(Net())
    error = raised(nn.Sequential(net) if inner else net, torch.ones(2, 4))
    assert of_this_file(error) == [(__file__, Net.forward.__code__.co_firstlineno + 1, "forward")]
    assert not [frame for frame in frames(error) if "thunder_core" in frame[0]]
    missing = raised(net)
    assert isinstance(missing, TypeError)
    assert frames(missing) == []


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise Mine(4, "backward")


def test_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    loss = thunder.jit(lambda x: Backward.apply(x).sum())(x)
    error = raised(loss.backward)
    assert isinstance(error, Mine)
    assert frames(error)[-1][1] == Backward.backward.__code__.co_firstlineno + 2
    assert not [frame for frame in frames(error) if "thunder_core" in frame[0] or frame[0].startswith("<")]


def test_errors_of_thunder_end_at_the_users_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]

    error = raised(thunder.jit(program, sharp_edges="error"), torch.ones(2))
    assert isinstance(error, DataDependentError)
    assert frames(error) == [(__file__, program.__code__.co_firstlineno + 1, "program")]
    assert error.__cause__ is not None


def test_defects_of_thunder_show_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*_: Any, **__: Any) -> None:
        raise KeyError("a defect")

    record.__code__ = record.__code__.replace(co_filename=sys.modules[OpWriter.__module__].__file__ or "")
    monkeypatch.setattr(OpWriter, "record", record)
    error = raised(thunder.jit(lambda x: x * 2), torch.ones(2))
    assert frames(error)[-1][0].endswith("op_writer.py")
    assert len([frame for frame in frames(error) if "thunder_core" in frame[0]]) > 3


def test_a_post_mortem_debugger_is_in_the_users_frame() -> None:
    error = raised(thunder.jit(fails), torch.ones(2), "raise")
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("p how\nw\nq\n"), stdout=out, nosigint=True, readrc=False)
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    printed = out.getvalue()
    assert "'raise'" in printed
    assert "fails()" in printed


@pytest.mark.slow
def test_an_uncaught_error_is_as_short_as_in_eager(tmp_path: Path) -> None:
    source = (
        "import torch, thunder\n"
        "def inner(table, i):\n"
        "    return table[i]\n"
        "def program(table, i):\n"
        "    return inner(table.exp(), i) + 1\n"
        "compiled = COMPILE(program)\n"
        "compiled(torch.ones(3), torch.tensor([1]))\n"
        "compiled(torch.ones(3), torch.tensor([ARGUMENT]))\n"
    )
    printed = []
    for compile, argument in (("thunder.jit", "7"), ("", "7"), ("thunder.jit", "1.5"), ("", "1.5")):
        script = tmp_path / "script.py"
        script.write_text(source.replace("COMPILE", compile).replace("ARGUMENT", argument))
        done = run_forked(script, directory=ROOT)
        assert done.returncode == 1
        printed.append([line.strip() for line in done.stderr.splitlines() if set(line.strip()) - set("^~")])
    running, eager, recording, eager_recording = printed
    assert recording[:-1] == eager_recording[:-1]
    assert "tensors used as indices must be long" in recording[-1]
    assert running[:3] == eager[:3]
    assert running[3:5] == [f'File "{tmp_path / "script.py"}", line 3, in inner', "return table[i]"]
    assert running[5].startswith("IndexError: index 7 is out of bounds")
    assert len(running) <= len(eager) + 1


def test_frames_of_replaced_functions_can_be_looked_at() -> None:
    """As debuggers, pytest and reporters of errors do; the process crashed for functions with a closure."""
    zero, offset = 0, 1

    def program(x: int, /) -> Any:
        return x + offset + zero

    undo: list[Callable[[], Any]] = []
    replace_code(program, lambda *args: dict(sys._getframe(1).f_locals), undo)
    try:
        variables = program(3)
    finally:
        undo[0]()
    assert (variables["args"], variables["offset"], variables["zero"]) == ((3,), 1, 0)
    assert program(3) == 4
