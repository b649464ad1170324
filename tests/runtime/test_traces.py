"""What users see of a compilation: traces, guards, report, saved programs."""

from __future__ import annotations

import ast
import copy
import linecache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder


def program(x: torch.Tensor, scale: float = 2.0) -> Any:
    y = torch.sin(x) * scale  # the sine
    y.add_(1)
    return {"y": y, "sum": y.sum()}


@pytest.fixture
def compiled() -> Any:
    result = thunder.jit(program, executors=[])
    result(torch.randn(3, 4))
    return result


def test_traces_are_python_with_ops(compiled: Any) -> None:
    traces = thunder.last_traces(compiled)
    assert len(traces) >= 2
    for trace in traces:
        ast.parse(str(trace))
    first = str(traces[0])
    assert "sin" in first
    assert "test_traces.py" in first
    assert "float32" in first or "f32" in first
    assert "del " in str(traces[-1])


def test_prologue_is_python(compiled: Any) -> None:
    prologue = thunder.last_prologue_traces(compiled)[-1]
    ast.parse(str(prologue))
    assert "4" in str(prologue)


def test_epilogue_writes_back() -> None:
    compiled = thunder.jit(lambda x: x.add_(1))
    compiled(torch.ones(2))
    epilogues = thunder.last_epilogue_traces(compiled)
    assert "copy_" in str(epilogues[-1]) if epilogues else "add_" in str(thunder.last_traces(compiled)[-1])


def test_counters() -> None:
    compiled = thunder.jit(program)
    for _ in range(3):
        compiled(torch.randn(3, 4))
    compiled(torch.randn(5, 4))
    compiled(torch.randn(5, 4), 3.0)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (2, 3)


def test_report(compiled: Any) -> None:
    compiled(torch.randn(9, 4))
    report = thunder.explain(compiled)
    text = str(report.programs)
    assert "shape" in text
    assert "program" in text


def test_save_and_load(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    compiled = thunder.jit(model)
    x = torch.randn(2, 4)
    expected = compiled(x)
    path = tmp_path / "program.py"
    thunder.save_trace(compiled, path)
    loaded = thunder.load_trace(path)
    values = {tuple(value.shape): value for value in (x, *model.parameters())}
    inputs = [values[tuple(int(size) for size in proxy.shape)] for proxy in loaded.trace.inputs]
    result = loaded(*inputs)
    result = result[0] if isinstance(result, tuple | list) else result
    assert torch.equal(result, expected)
    scope: dict[str, Any] = {"__name__": "saved"}
    exec(compile(path.read_text(), str(path), "exec"), scope)


def test_load_of_an_edited_program(tmp_path: Path) -> None:
    compiled = thunder.jit(lambda x: torch.sin(x) + 1)
    x = torch.randn(3)
    compiled(x)
    path = tmp_path / "program.py"
    thunder.save_trace(compiled, path)
    path.write_text(path.read_text().replace("torch.sin(", "torch.cos("))
    result = thunder.load_trace(path)(x)
    result = result[0] if isinstance(result, tuple | list) else result
    assert torch.equal(result, x.cos() + 1)


@pytest.mark.parametrize("text", ["", "x = = 1", "import os\nos.remove('x')\n", "def computation(x):\n    return y\n"])
def test_load_of_what_is_no_trace(text: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(text)
    with pytest.raises(thunder.ThunderError):
        thunder.load_trace(path)


def test_generated_source_is_in_linecache(compiled: Any) -> None:
    ours = [name for name in linecache.cache if "thunder" in name and not Path(name).exists()]
    assert ours


def test_equal_calls_are_computed_once_unless_random() -> None:
    def doubles(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.sin() + torch.rand(3) + torch.rand(3)

    compiled = thunder.jit(doubles)
    compiled(torch.ones(3))
    last = str(thunder.last_traces(compiled)[-1])
    code = "\n".join(line.split("#")[0] for line in last.splitlines())
    assert code.count("sin(") == 1
    assert code.count("rand(") == 2


def test_dead_code_goes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.cos()
        return x.sin()

    compiled = thunder.jit(program)
    compiled(torch.ones(3))
    assert "cos(" in str(thunder.last_traces(compiled)[0])
    assert "cos(" not in str(thunder.last_traces(compiled)[-1])


def test_verifier_accepts_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1))
    x = torch.randn(3, 4)
    twin = copy.deepcopy(model)
    torch.manual_seed(0)
    expected = model(x)
    torch.manual_seed(0)
    assert torch.equal(thunder.jit(twin)(x), expected)
