"""What compilations say of themselves, and the bar that shows it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder import progress_bar
from thunder_core import progress
from thunder_testing.pointwise import Pointwise

ROOT = Path(__file__).resolve().parents[2]


class Watched:
    """A display that records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int | None]] = []
        self.closed = 0

    def update(self, stage: str, done: int, total: int | None) -> None:
        self.seen.append((stage, done, total))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def displays():
    """Those of all compilations, by name."""
    found: dict[str, Watched] = {}
    thunder.jit(lambda x: x)  # so that the bar is not put back by the first of the test
    previous = progress._create
    yield found
    progress.show_with(previous)


def watch(found: dict[str, Watched]) -> None:
    progress.show_with(lambda name: found.setdefault(name, Watched()))


def test_stages_and_regions(displays: dict[str, Watched]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() @ x).sin() + 1

    compiled = thunder.jit(program, executors=[Pointwise()])
    watch(displays)
    compiled(torch.randn(3, 3))
    (display,) = displays.values()
    stages = list(dict.fromkeys([stage for stage, _, _ in display.seen]))
    compiled_in = [stage.name for stage in thunder.explain(compiled).entries[0].stages]
    assert [*stages, "checks of results"] == compiled_in  # the checks belong to the first run
    assert [(done, total) for stage, done, total in display.seen if total] == [(0, 2), (1, 2)]
    assert display.closed == 1


def test_closed_after_errors_and_silent_afterwards(displays: dict[str, Watched]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    compiled = thunder.jit(program)
    watch(displays)
    with pytest.raises(ValueError, match="no"):
        compiled(torch.randn(3))
    assert [display.closed for display in displays.values()] == [1]
    progress.stage("nobody listens")
    assert all(stage != "nobody listens" for display in displays.values() for stage, _, _ in display.seen)


def test_threads_have_their_own(displays: dict[str, Watched]) -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def two(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = [thunder.jit(one), thunder.jit(two)]
    watch(displays)
    threads = [threading.Thread(target=program, args=(torch.ones(2),)) for program in compiled]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(displays) == 2
    assert {display.closed for display in displays.values()} == {1}


@pytest.mark.parametrize(
    ("environment", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"CI": "true"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"THUNDER_PROGRESS": "1", "CI": "true"}, False, True),
        ({"THUNDER_PROGRESS": "0"}, True, False),
    ],
)
def test_wanted(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], terminal: bool, expected: bool) -> None:
    for name in ("CI", "TERM", "THUNDER_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    class Stream:
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setattr(sys, "stderr", Stream())
    assert progress_bar.wanted() is expected


def test_one_bar_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PROGRESS", "1")
    first = progress_bar.display("one")
    assert first is not None
    assert progress_bar.display("two") is None
    first.close()
    first.close()
    third = progress_bar.display("three")
    assert third is not None
    third.close()


PROGRAM = """
import random, sys, time
from thunder import progress_bar
progress_bar._DELAY = {delay}
before = random.getstate()
display = progress_bar.display("program")
if display is not None:
    display.update("AssignExecutors", 1, 5)
    time.sleep(0.5)
    display.update("AssignExecutors", 2, 5)
    time.sleep(0.3)
    display.close()
print("rich" if "rich" in sys.modules else "nothing", "imported")
if random.getstate() != before:
    print("a random number drawn")
"""


def run(delay: float, environment: dict[str, str], terminal: bool) -> tuple[str, str]:
    """Standard output and standard error of the program."""
    base = {name: value for name, value in os.environ.items() if name not in ("CI", "THUNDER_PROGRESS")}
    command = [sys.executable, "-c", PROGRAM.format(delay=delay)]
    options: dict[str, Any] = {"cwd": ROOT, "env": base | {"TERM": "xterm", **environment}, "stdout": subprocess.PIPE}
    if not terminal:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True, **options)
        return done.stdout.strip(), done.stderr
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command, stderr=theirs, text=True, **options)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the terminal's end, as the program has ended
        while written := os.read(ours, 1 << 16):  # what is there: a part, if the machine is busy
            shown += written
    os.close(ours)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    return output.strip(), shown.decode()


@pytest.mark.slow
def test_on_a_terminal() -> None:
    output, shown = run(0.1, {}, terminal=True)
    assert output == "rich imported"
    assert "compiling program: AssignExecutors" in shown
    assert "3 of 5" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line is gone


@pytest.mark.parametrize(
    ("environment", "terminal"),
    [({}, False), ({"THUNDER_PROGRESS": "0"}, True), ({"CI": "1"}, True)],
    ids=["pipe", "off", "CI"],
)
def test_silent(environment: dict[str, str], terminal: bool) -> None:
    assert run(0.1, environment, terminal) == ("nothing imported", "")


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress_bar, "_DELAY_OF_LINES", 0.05)
    monkeypatch.setattr(progress_bar, "_requested", False)
    monkeypatch.delenv("THUNDER_PROGRESS", raising=False)
    assert progress_bar.display("a library's") is None
    progress_bar.request()
    display = progress_bar.display("Net")
    assert display is not None
    display.update("acquisition", 0, None)
    while not (shown := capsys.readouterr().err):
        time.sleep(0.01)
    for done in range(3):
        display.update("AssignExecutors", done, 3)
    display.close()
    lines = [line.rpartition(" (")[0] for line in (shown + capsys.readouterr().err).splitlines()]
    assert lines == [
        "compiling Net: acquisition",
        "compiling Net: AssignExecutors, 1 of 3",
        "compiling Net: done",
    ]
    monkeypatch.setenv("THUNDER_PROGRESS", "0")
    assert progress_bar.display("Net") is None


@pytest.mark.slow
def test_short_compilations_show_nothing() -> None:
    assert run(30.0, {}, terminal=True) == ("rich imported", "")
