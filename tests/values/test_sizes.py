"""Programs whose Python depends on values, called with several sizes: symbols, guesses and numbers that vary together."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from tests.values.programs import CALLS, PROGRAMS, Program
from tests.values.test_programs import assert_same, outcome


def calls(length: int) -> list[torch.Tensor]:
    """Arguments of that length, which lead to different outcomes."""
    return [torch.cat([x, x.flip(0) * 0.5, x * 0.25])[:length] for x in CALLS[:4]]


def runs(program: Program, x: torch.Tensor) -> bool:
    """Whether eager takes an argument of that length."""
    try:
        outcome(program, x, training=False)
    except (RuntimeError, IndexError, ValueError):
        return False
    return True


@pytest.mark.filterwarnings("ignore::thunder.RecompileWarning")
@pytest.mark.parametrize("dynamic", ["automatic", True], ids=["automatic", "dynamic"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program: Program, training: bool, dynamic: Any) -> None:
    compiled = thunder.jit(program, dynamic=dynamic)
    for length in (4, 6, 8, 12, 4, 6):
        for x in calls(length):
            if runs(program, x):
                assert_same(outcome(compiled, x, training=training), outcome(program, x, training=training))
    report = thunder.explain(compiled)
    if report.fallbacks or True:
        import sys
        e = report.entries
        print("REP", program.__name__, dynamic, training, len(e), dict(report.fallbacks), sum(bool(x.sizes and x.sizes.symbols) if x.sizes else False for x in e), [x.sizes.reason for x in e if x.sizes and x.sizes.reason][:1], file=sys.__stderr__)
