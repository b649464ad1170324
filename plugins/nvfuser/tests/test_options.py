"""Fuel, and regions as scripts."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import fake_nvfuser
import pytest
import torch
from nvfuser_programs import compiled, executor, reasons, regions

import thunder
from thunder_plugin_nvfuser.reproducers import save_reproducers


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = (x.exp() + 1).log() @ w
    return (x * 2).tanh() @ w.sin()


@pytest.mark.parametrize("fuel", range(4))
def test_fuel(fuel: int) -> None:
    """Equal regions count once."""
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    jitted = thunder.jit(program, executors=[executor(fuel=fuel)])
    torch.testing.assert_close(jitted(x, w), program(x, w))
    different = len(set(regions(jitted)))
    assert different == min(fuel, 2)
    assert (f"{fuel} regions were compiled (option fuel)" in reasons(jitted)) == (fuel < 2)


def test_definitions_are_saved(tmp_path: Path) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    jitted = compiled(program, save_definitions=str(tmp_path / "while compiling"))
    jitted(x, w)
    later = save_reproducers([thunder.last_traces(jitted)[-1]], tmp_path / "later")
    assert len(later) == len(set(regions(jitted)))
    first = {path.name: path.read_text() for path in (tmp_path / "while compiling").iterdir()}
    assert first == {path.name: path.read_text() for path in later}


def test_a_script_runs_its_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = compiled(lambda x, i: (x.half().t() + 1)[i] * 2)
    jitted(torch.randn(3, 5), torch.tensor([2, 4]))
    (path,) = save_reproducers([thunder.last_traces(jitted)[-1]], tmp_path)
    text, _, timing = path.read_text().partition("start, end")
    assert "elapsed_time" in timing
    monkeypatch.setitem(sys.modules, "nvfuser_direct", fake_nvfuser)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text.replace('"cuda"', '"cpu"'), str(path), "exec"), {})
    assert printed.getvalue() == "(2, 3) (3, 1) torch.float16\n"
    compile(path.read_text(), str(path), "exec")
