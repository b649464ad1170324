"""Golden traces: what three small programs look like as acquired and as executed, backward too, in ``tests/golden``.

``UPDATE_GOLDEN=1 pytest tests/test_golden.py`` rewrites them; look at the difference before committing it.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from tests.golden_programs import programs
from thunder_core.ir.printer import print_trace
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.ir.verifier import verify
from thunder_core.passes.functionalize import functional_form
from thunder_frontend.record.front_end import front_end
from thunder_saving.reader import read_trace

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "golden"
NAMES = ("mlp", "mutation", "attention")


def relative(trace: Trace) -> Trace:
    """The trace with file names relative to the repository."""
    lines = []
    for bound in trace.symbols:
        location = bound.location
        if location is not None:
            path = Path(location.filename)
            location = replace(location, filename=path.relative_to(ROOT).as_posix())
        lines.append(replace(bound, location=location))
    return replace(trace, symbols=tuple(lines))


def acquired(name: str) -> tuple[Trace, tuple[Any, ...]]:
    program, args = programs()[name]
    result = front_end.record(program, args, {})
    return relative(result.trace), result.inputs


def functional(name: str) -> tuple[Trace, tuple[Any, ...]]:
    trace, inputs = acquired(name)
    return functional_form(trace).computation, inputs


def executed(name: str) -> tuple[Trace, tuple[Any, ...]]:
    program, args = programs()[name]
    compiled = thunder.jit(program, executors=[])
    compiled(*copy.deepcopy(args))
    trace = thunder.last_traces(compiled)[-1]
    _, inputs = acquired(name)
    assert [proxy.name for proxy in trace.inputs] == [proxy.name for proxy in acquired(name)[0].inputs]
    return relative(trace), inputs


def backward(name: str) -> tuple[Trace, tuple[Any, ...]]:
    """Its inputs are what the forward program returns for backward, and ones as cotangents."""
    program, args = programs()[name]
    compiled = thunder.jit(program, executors=[])
    compiled(*copy.deepcopy(args))
    forward, inputs = executed(name)
    trace = thunder.last_backward_traces(compiled)[-1]
    torch.manual_seed(1)
    with torch.no_grad():
        results = compile_trace(forward)(*[copy.deepcopy(value.detach()) for value in inputs])
    known = dict(zip([proxy.name for proxy in forward.output], results, strict=True))
    given = [known.get(p.name, torch.ones(p.shape, dtype=p.dtype)) for p in trace.inputs]
    return relative(trace), tuple(given)


STAGES = {"acquired": acquired, "functional": functional, "executed": executed, "backward": backward}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_golden(name: str, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where the relative file names of the user's lines are found
    trace, inputs = STAGES[stage](name)
    text = print_trace(trace)
    path = FOLDER / f"{name}_{stage}.py"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "run UPDATE_GOLDEN=1 pytest tests/test_golden.py to accept"
    verify(trace)
    again = read_trace(text, filename=str(path))
    # The reader finds out which values require grad. Functionalization estimates it for the values that it makes;
    # forward and backward say which values required it in the program that was differentiated.
    assert again == trace or (stage != "acquired" and without_grad(again) == without_grad(trace))
    check_execution(text, trace, inputs)


def without_grad(trace: Trace) -> Trace:
    def plain(leaf: Any) -> Any:
        return replace(leaf, requires_grad=False) if isinstance(leaf, TensorProxy) else leaf

    lines = [replace(line.map_arguments(plain), output=map_leaves(plain, line.output)) for line in trace.symbols]
    inputs, output = map_leaves(plain, (trace.inputs, trace.output))
    return replace(trace, inputs=inputs, symbols=tuple(lines), output=output)


def check_execution(text: str, trace: Trace, inputs: tuple[Any, ...]) -> None:
    """The printed module, executed, and the compiled trace do the same to equal inputs."""
    namespace: dict[str, Any] = {}
    exec(compile(text, "golden", "exec"), namespace)
    results = []
    for function in (namespace[trace.name], compile_trace(trace)):
        copies = [copy.deepcopy(value.detach()) for value in inputs]
        torch.manual_seed(1)
        with torch.no_grad():
            results.append((function(*copies), copies))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_acquired_programs_compute_what_eager_does(name: str) -> None:
    program, args = programs()[name]
    trace, inputs = acquired(name)
    torch.manual_seed(1)
    results = compile_trace(trace)(*copy.deepcopy(inputs))
    torch.manual_seed(1)
    expected = program(*args)
    expected = tuple(expected.values()) if isinstance(expected, dict) else (expected,)
    torch.testing.assert_close(results, expected, rtol=0, atol=0)
