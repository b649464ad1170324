"""Thunder without this package."""

from __future__ import annotations

from pathlib import Path

import pytest

import thunder
from thunder_testing.forked import LIBRARIES, run_forked

PROGRAM = """
import sys

import torch

sys.modules["thunder_functional"] = None  # as if it was not installed

import thunder

compiled = thunder.jit(lambda x: torch.relu(x) + 1)
assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
assert torch.equal(torch.func.vmap(compiled)(torch.zeros(2, 3)), torch.ones(2, 3))
print(*thunder.explain(compiled).fallbacks)
for call in (thunder.grad, thunder.value_and_grad, thunder.vjp):
    try:
        call(torch.sin)
    except thunder.PluginError as error:
        print(" ".join(str(error).split()))
"""


@pytest.mark.slow
def test_programs_compile_and_transformations_are_refused(tmp_path: Path) -> None:
    done = run_forked(PROGRAM, directory=tmp_path, path=[Path(thunder.__file__).parents[1]], preloaded=LIBRARIES)
    assert done.returncode == 0, done.stderr
    fallback, *refusals = done.stdout.splitlines()
    assert fallback == "compiled calls under torch.func need the package thunder-functional, which is not installed"
    assert len(refusals) == 3
    for refusal in refusals:
        assert "grad, value_and_grad and vjp need the package thunder-functional, which is not installed" in refusal
        assert "pip install" in refusal
        assert "plugins/functional" in refusal
