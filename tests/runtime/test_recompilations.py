"""Programs that are compiled again and again: two warnings, at the user's line, and eager PyTorch beyond the limit."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import thunder
from thunder_core.checks.guard import show
from thunder_core.errors import RecompileError, RecompileWarning, UncacheableWarning
from thunder_testing.forked import run_forked

ROOT = Path(__file__).resolve().parents[2]


def warned(calls: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calls()
    return [warning for warning in caught if issubclass(warning.category, RecompileWarning)]


def power(x: torch.Tensor, n: int) -> torch.Tensor:
    return x**n


def test_one_warning_for_many_values_and_one_at_the_limit() -> None:
    compiled = thunder.jit(power, dynamic=False, recompile_warning=3, recompile_limit=6)
    x = torch.tensor([1.5, 2.0])

    def calls() -> None:
        for n in range(20):
            assert torch.equal(compiled(x, n), power(x, n))

    early, late = warned(calls)
    assert "compiled 3 times" in str(early.message)
    assert "n: expected 2, got 3 (3 times)" in str(early.message)
    assert "torch.tensor(number)" in str(early.message)
    assert "has 6 compiled entries" in str(late.message)
    assert "eager" in str(late.message)
    assert {early.filename, late.filename} == {__file__}
    assert {early.lineno, late.lineno} == {calls.__code__.co_firstlineno + 2}


def test_beyond_the_limit_entries_serve_and_eager_runs_the_rest() -> None:
    compiled = thunder.jit(power, dynamic=False, recompile_limit=2)
    x = torch.tensor([1.5, 2.0])

    def calls() -> None:
        for n in range(4):
            assert torch.equal(compiled(x, n), power(x, n))

    (warning,) = warned(calls)
    assert "is not compiled again" in str(warning.message)
    before = thunder.cache_hits(compiled)
    assert not warned(calls)
    report = thunder.explain(compiled)
    assert (thunder.cache_hits(compiled) - before, len(report.entries)) == (2, 2)
    assert report.fallbacks == {"no entry fits, and the recompile limit of 2 is reached": 4}
    assert "run by eager PyTorch 4 times: no entry fits" in str(report)
    assert (report.cache_hits, report.cache_misses) == (2, 6)


def test_the_warnings_name_all_that_changes() -> None:
    compiled = thunder.jit(lambda x: x * 2, recompile_warning=4, dynamic=False)

    def calls() -> None:
        for size in range(1, 4):
            compiled(torch.ones(size))
        with torch.no_grad():
            compiled(torch.ones(3))
        compiled(torch.ones(3, dtype=torch.float64))
        compiled(torch.ones(4))

    (warning,) = warned(calls)
    text = str(warning.message)
    assert "x: shape (3,) instead of (2,) (2 times)" in text or "x: dtype" in text
    assert "torch grad_enabled" in text
    assert "pad it to a few shapes" in text
    assert "call it under the same modes" in text


def test_number_of_arguments() -> None:
    compiled = thunder.jit(lambda *xs: xs[0] + len(xs), recompile_warning=1, recompile_limit=2)
    (early, late) = warned(lambda: [compiled(*[torch.ones(1)] * count) for count in range(1, 5)])
    assert "pass the same number and names of arguments" in str(early.message)
    assert "expected 2 positional arguments, got 3 (2 times)" in str(late.message)


def test_the_limit_holds_below_the_number_of_the_warning() -> None:
    compiled = thunder.jit(power, dynamic=False, recompile_warning=8, recompile_limit=2)
    (only,) = warned(lambda: [compiled(torch.ones(1), n) for n in range(9)])
    assert "has 2 compiled entries" in str(only.message)


def test_warnings_as_errors_are_raised_once() -> None:
    compiled = thunder.jit(power, dynamic=False, recompile_warning=1, recompile_limit=2)
    compiled(torch.ones(1), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RecompileWarning, match="is compiled again"):
            compiled(torch.ones(1), 2)
        compiled(torch.ones(1), 2)
        with pytest.raises(RecompileWarning, match="is not compiled again"):
            compiled(torch.ones(1), 3)
        assert compiled(torch.ones(1), 3).item() == 1


@pytest.mark.slow
def test_lines_of_scripts(tmp_path: Path) -> None:
    """Whatever calls the program: the script's line, a module of PyTorch in between, an uncacheable one, no frame."""
    script = tmp_path / "script.py"
    script.write_text(
        "import random, threading\n"
        "import torch, thunder\n"
        "inner = thunder.jit(torch.nn.Linear(2, 2), recompile_warning=1, recompile_limit=2, dynamic=False)\n"
        "model = torch.nn.Sequential(inner)\n"
        "function = thunder.jit(lambda x: x + 1, recompile_warning=1, recompile_limit=2, dynamic=False)\n"
        "drawn = thunder.jit(lambda x: x * random.random())\n"
        "for size in range(1, 6):\n"
        "    model(torch.ones(size, 2))\n"
        "    function(torch.ones(size))\n"
        "drawn(torch.ones(1))\n"
    )
    done = run_forked(script, directory=ROOT)
    assert done.returncode == 0, done.stderr
    places = [line.partition("Warning: ")[0] for line in done.stderr.splitlines() if "Warning: " in line]
    expected = [(8, "Recompile"), (9, "Recompile"), (8, "Recompile"), (9, "Recompile"), (10, "Uncacheable")]
    assert places == [f"{script}:{line}: {category}" for line, category in expected]


def _text(x: torch.Tensor, n: Any) -> Any:
    return x * 2, f"{n:.3f}"


def _text_of_value(x: torch.Tensor, n: Any) -> Any:
    return x * 2, f"{x.sum().item() + n:.3f}"


@pytest.mark.parametrize("program", [_text, _text_of_value], ids=lambda program: program.__name__)
def test_values_that_never_recur_are_not_compiled_for_ever(program: Any) -> None:
    compiled = thunder.jit(program, executors=[])

    def call(index: int) -> None:
        x, n = torch.arange(3.0) * (index if program is _text_of_value else 1), index / 7 if program is _text else 1
        found, expected = compiled(x, n), program(x, n)
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]

    (warning,) = warned(lambda: [call(index) for index in range(20)])
    assert "value" in str(warning.message)
    misses = thunder.cache_misses(compiled)
    assert misses <= 6
    for _ in range(2):
        call(misses - 1)  # a value of an entry recurs
        call(misses + 20)
    assert thunder.cache_misses(compiled) > misses


def test_a_program_that_cannot_be_cached_runs_eagerly_in_the_end() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * random.random()

    compiled, x = thunder.jit(program, executors=[]), torch.arange(3.0)

    def call() -> None:
        for seed in range(8):
            random.seed(seed)
            found = compiled(x)
            random.seed(seed)
            assert torch.equal(found, program(x))

    with pytest.warns(UncacheableWarning, match="use torch's generators"):
        call()
    assert thunder.cache_misses(compiled) == 3
    assert sum(thunder.explain(compiled).fallbacks.values()) == 5


@pytest.mark.parametrize(
    ("program", "call", "text", "absent"),
    [
        (lambda x, lr, mode: x * lr * len(mode), lambda n: (0.1 * n, "m" * n), "mode: each text has a program", "lr"),
        (lambda x, table: x * len(table), lambda n: ({torch.randn(2, 2): 1},), "Tensor float32 (2, 2)", "tensor(["),
        (lambda x, box: x * box.n, lambda n: (Box(n, torch.randn(3)),), "box.n: expected 8, got 9", "tensor(["),
    ],
    ids=["blame", "keys", "attribute"],
)
def test_warnings_name_what_changed_and_have_no_contents(program: Any, call: Any, text: str, absent: str) -> None:
    compiled = thunder.jit(program, executors=[], dynamic=False)
    (warning,) = warned(lambda: [compiled(torch.ones(3), *call(number)) for number in range(1, 11)])
    message = str(warning.message)
    assert text in message
    assert absent not in message


@dataclass
class Box:
    n: int
    values: torch.Tensor


def test_values_in_messages() -> None:
    tensor, array = torch.randn(2, 3), np.ones(4)
    assert show(tensor) == "Tensor float32 (2, 3)"
    assert show(array) == "ndarray float64 (4,)"
    assert show({"a": [tensor, 1], "b": "text"}) == "{'a': [Tensor float32 (2, 3), 1], 'b': 'text'}"
    assert show((tensor,)) == "(Tensor float32 (2, 3),)"
    assert show(Box(2, tensor)) == "Box(n=2, values=Tensor float32 (2, 3))"
    assert "tensor(" not in show(torch.nn.Parameter(tensor)) + show(torch.nn.Linear(2, 3).state_dict())
    assert len(show(["long"] * 1000)) == 80


def test_a_refused_call_prints_no_contents() -> None:
    compiled = thunder.jit(lambda x, table: x * len(table), executors=[], allow_recompiles=False)
    compiled(torch.ones(2), {torch.randn(2): 1})
    with pytest.raises(RecompileError) as raised:
        compiled(torch.ones(2), {torch.randn(3): 1})
    assert "expected the keys (Tensor float32 (2,),), got (Tensor float32 (3,),)" in str(raised.value)
