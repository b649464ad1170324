"""``thunder tune``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from timed_executors import CLOCK, VirtualClock

from thunder.command_line.main import main

PROGRAM = """
import torch
from timed_executors import activations as model, Network


def inputs():
    return torch.linspace(-1, 1, 12).view(3, 4)


def without_inputs(x, y):
    return x + y


def failing(x):
    raise ValueError("not today")
"""

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Runs ``thunder tune`` in a directory with a program; returns the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("thunder_plugin_tuning.tuning.Clock", lambda: CLOCK)
    monkeypatch.setattr("thunder_plugin_tuning.tuning.clock_for", lambda tensors: CLOCK)
    Path("program.py").write_text(PROGRAM)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["tune", *arguments])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


def test_prints_a_configuration_and_progress(command: Command) -> None:
    code, out, err = command("program.py:model", "--executors", "quick")
    assert code == 0
    assert out.startswith("# The executors of program.py:model, chosen by `thunder tune`.\n")
    assert "  - quick:\n      include:\n        - timed_executors.silu\n" in out
    assert "s] quick first: not faster, 6 -> 6 ms\n" in err
    assert "s] timed_executors.silu by quick: faster, 6 -> 4 ms\n" in err


@pytest.mark.slow
def test_writes_a_file(command: Command) -> None:
    code, out, _ = command("program.py:model", "--executors", "quick", "-o", "executors.yaml")
    assert code == 0
    assert out == (
        "program.py:model: 6 -> 4 ms, 1.50 times as fast\n"
        "wrote executors.yaml: thunder.jit(model, config='executors.yaml')\n"
    )
    assert main(["config", "check", "executors.yaml"]) == 0
    assert command("program.py:model", "--executors", "idle", "-o", "executors.yaml")[1].startswith(
        "program.py:model: no change of the default executors (PyTorch alone) is faster\n"
    )
    assert Path("executors.yaml").read_text().count("\nexecutors: []\n") == 1


def test_explain_suggests_the_file(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    command("program.py:model", "--executors", "quick", "-o", "executors.yaml")
    assert main(["explain", "program.py:model"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("program.py:model: 1 program")
    assert lines[-2] == "suggestion: thunder tune measured 1.50 x the speed, 6 ms to 4 ms a call:"
    assert lines[-1] == "  thunder.jit(model, config='executors.yaml')"


@pytest.mark.slow
def test_prints_json(command: Command) -> None:
    code, out, _ = command("program.py:Network", "--executors", "pairs", "--train", "--json")
    assert code == 0
    data = json.loads(out)
    assert data["train"] is True
    assert data["measurements"][0]["outcome"] == "slower"
    assert {row["executors"][0] for row in data["operations"]} == {"reference"}
    assert data["environment"]["versions"]["thunder-core"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["program.py:without_inputs"], 2, "cannot be called with its inputs"),
        (["program.py:absent"], 2, "has no 'absent'"),
        (["program.py:model", "--limit", "0"], 2, "0 is not a positive number of seconds"),
        (["program.py:model", "-o", "executors.json"], 2, "does not end with .yaml or .yml"),
        (["program.py:model", "-o", "absent/a.yaml"], 2, "there is no folder absent"),
        (["program.py:model", "--config", "absent.yaml"], 2, "absent.yaml"),
        (["program.py:model", "--executors", "quik"], 1, "did you mean 'quick'"),
        (["program.py:model", "--executors", ""], 1, "there is nothing to choose"),
        (["program.py:failing", "--executors", "quick"], 1, "ValueError: not today"),
    ],
)
def test_errors(command: Command, arguments: list[str], code: int, text: str) -> None:
    found, out, err = command(*arguments)
    assert found == code
    assert text in " ".join(err.split()).replace(" │ ", " ")
    assert not out
