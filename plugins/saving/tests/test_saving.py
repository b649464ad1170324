"""Saved programs run by themselves and load again."""

import runpy
from pathlib import Path

import pytest
import torch

import thunder_core
from thunder_core.errors import TraceError, TraceSyntaxError
from thunder_core.ir.context import Context
from thunder_core.ir.symbol import Symbol, Tag
from thunder_saving.files import load_trace, save_trace
from thunder_saving.self_check import random_inputs
from thunder_testing import hand_built as build
from thunder_testing.forked import run_forked

SMALL = torch.tensor([[1.0, float("-inf")], [0.1, -0.0]])
LARGE = torch.randn(4, 50)


def run(program):
    """In a process that finds this checkout."""
    return run_forked(program, path=[Path(thunder_core.__file__).parents[1]])


def test_program_without_constants(tmp_path):
    trace = build.sample()
    save_trace(trace, tmp_path / "program.py")
    program = load_trace(tmp_path / "program.py")
    assert program.trace == trace
    assert program.constants == {}
    inputs = random_inputs(program.inputs)
    namespace = runpy.run_path(str(tmp_path / "program.py"))
    torch.testing.assert_close(program(*inputs), namespace["computation"](*inputs))
    torch.testing.assert_close(program(inputs[0], weight=inputs[1]), program(*inputs))


def test_constants_are_part_of_the_file(tmp_path):
    x = torch.randn(3, 4)
    inputs = [build.tensor("x", (3, 4), 0), build.tensor("small", (2, 2), 1), build.tensor("large", (4, 50), 2)]
    symbol = build.registry.symbol_named("torch.matmul")
    lines = [
        build.bound(symbol, (inputs[0], inputs[2]), build.tensor("product", (3, 50), 3)),
        build.bound(build.RELU, (inputs[1],), build.tensor("rest", (2, 2), 4)),
    ]
    trace = build.trace(tuple(inputs), lines, (lines[0].output, lines[1].output, inputs[1]))
    path = tmp_path / "program.py"
    save_trace(trace, path, {"small": SMALL, "large": LARGE})
    text = path.read_text()
    assert "'small': torch.tensor([[1.0, -inf], [0.10000000149011612, -0.0]], dtype=torch.float32)," in text
    assert "'large': decode(" in text
    program = load_trace(path)
    assert program.trace == trace
    assert [proxy.name for proxy in program.inputs] == ["x"]
    product, _, small = program(x)
    assert torch.equal(product, x @ LARGE)
    assert torch.equal(small, SMALL)
    assert torch.equal(runpy.run_path(str(path))["program"](x)[0], x @ LARGE)


def test_running_the_file(tmp_path):
    path = tmp_path / "program.py"
    save_trace(build.sample(), path)
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert "x: f32[2, 4]" in done.stdout
    assert "float32[2, 3], values from " in done.stdout


def test_running_an_edited_file_shows_the_mistake(tmp_path):
    path = tmp_path / "program.py"
    save_trace(build.sample(), path)
    path.write_text(path.read_text().replace("linear(x, weight)", "linear(x)"))
    done = run(path)
    assert done.returncode == 1
    assert f"{path}:14: torch.nn.functional.linear(x)" in done.stderr


def test_a_saved_program_needs_no_thunder(tmp_path):
    path = tmp_path / "program.py"
    save_trace(build.sample(), path)
    code = f"import sys, runpy; sys.modules['thunder_core'] = None; runpy.run_path({str(path)!r}, run_name='other')"
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_the_recorded_modes_are_entered(tmp_path):
    x, weight = build.tensor("x", (2, 4), 0), build.tensor("weight", (4, 4), 1)
    output = build.tensor("y", (2, 4), 2, dtype=torch.bfloat16)
    context = Context(False, False, (("cpu", torch.bfloat16),))
    trace = build.trace((x, weight), [build.bound(build.LINEAR, (x, weight), output)], output, context=context)
    save_trace(trace, tmp_path / "program.py")
    program = load_trace(tmp_path / "program.py")
    assert program.trace == trace
    assert program(torch.randn(2, 4), torch.randn(4, 4)).dtype is torch.bfloat16


def test_local_functions_are_refused(tmp_path):
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    symbol = Symbol("helper", lambda x: x, tags=frozenset({Tag.LOCAL}))
    trace = build.trace((x,), [build.bound(symbol, (x,), y, location=build.HERE)], y)
    with pytest.raises(TraceError, match="calls helper, which a file cannot import") as caught:
        save_trace(trace, tmp_path / "program.py")
    assert build.HERE.describe() in str(caught.value)


def test_errors_of_the_program_name_the_users_line(tmp_path):
    save_trace(build.sample(), tmp_path / "program.py")
    program = load_trace(tmp_path / "program.py")
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        program(torch.randn(2, 4), torch.randn(3, 5))
    assert caught.value.__notes__ == [f"Called at {build.HERE.describe()}"]


def test_wrong_calls(tmp_path):
    save_trace(build.sample(), tmp_path / "program.py")
    program = load_trace(tmp_path / "program.py")
    with pytest.raises(TypeError, match="takes 2 inputs"):
        program(1, 2, 3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'weight'"):
        program(1)
    with pytest.raises(TypeError, match="got x twice"):
        program(1, x=1)


@pytest.mark.parametrize("text", ["", "x = = 1", "import os\nos.abort()\n", "def computation(x):\n    return y\n"])
def test_what_is_no_trace(text, tmp_path):
    (tmp_path / "program.py").write_text(text)
    with pytest.raises(TraceSyntaxError):
        load_trace(tmp_path / "program.py")


def test_random_inputs_share_memory_like_the_proxies():
    proxies = (
        build.tensor("a", (4,), 0),
        build.tensor("b", (2, 2), 0, stride=(1, 2)),
        build.tensor("c", (2,), 0, dtype=torch.complex64, offset=1),
        build.tensor("d", (0, 3), 1, requires_grad=True),
        build.tensor("e", (5,), 2, dtype=torch.int64),
        build.tensor("f", (3,), 3, dtype=torch.bool),
    )
    a, b, c, d, e, f = random_inputs(proxies)
    assert a.data_ptr() == b.data_ptr()
    assert c.data_ptr() == a.data_ptr() + 8
    assert d.requires_grad
    assert set(e.tolist()) <= {0, 1}
    assert f.dtype is torch.bool
