"""The options of ``thunder explain``, and ``thunder diff``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from thunder.command_line.main import main
from thunder_core.plugins.host import reset_host

PROGRAM = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
inputs = torch.ones(2, 4)
"""


def test_explain_writes_pages_and_diff_compares_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("explored.py").write_text(PROGRAM)
    explain = ["explain", "explored.py:model", "--executors", ""]
    assert main([*explain, "--train", "--html", "out.html", "--perfetto", "trace.json", "--json"]) == 0
    Path("train.json").write_text(capfd.readouterr().out)
    assert "Sequential - Thunder explorer" in Path("out.html").read_text()
    assert json.loads(Path("trace.json").read_text())["traceEvents"]
    assert main([*explain, "--html", "absent/out.html"]) == 2
    assert "there is no folder absent" in capfd.readouterr().err
    assert main([*explain, "--json"]) == 0
    Path("inference.json").write_text(capfd.readouterr().out)
    reset_host()
    assert main(["diff", "inference.json", "train.json"]) == 0
    printed = capfd.readouterr().out
    assert "decisions:\n  inference: torch.nn.functional.linear by reference: 1 x -> 0 x\n" in printed
    assert main(["diff", "train.json", "train.json", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"first": "train.json", "second": "train.json", "changes": []}
    assert main(["diff", "absent.json", "train.json"]) == 2
    assert "there is no file absent.json" in capfd.readouterr().err
