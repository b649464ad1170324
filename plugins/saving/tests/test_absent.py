"""Thunder without this package."""

from __future__ import annotations

from pathlib import Path

import pytest

import thunder
from thunder_testing.forked import LIBRARIES, run_forked

PROGRAM = """
import sys

import torch

sys.modules["thunder_saving"] = None  # as if it was not installed

import thunder

compiled = thunder.jit(lambda x: torch.relu(x) + 1)
assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
for call in (lambda: thunder.save_trace(compiled, "saved.py"), lambda: thunder.load_trace("saved.py")):
    try:
        call()
    except thunder.PluginError as error:
        print(" ".join(str(error).split()))
"""


@pytest.mark.slow
def test_programs_compile_and_files_are_refused(tmp_path: Path) -> None:
    done = run_forked(PROGRAM, directory=tmp_path, path=[Path(thunder.__file__).parents[1]], preloaded=LIBRARIES)
    assert done.returncode == 0, done.stderr
    refusals = done.stdout.splitlines()
    assert len(refusals) == 2
    for refusal in refusals:
        assert "save_trace and load_trace need the package thunder-saving, which is not installed" in refusal
        assert "pip install" in refusal
        assert "plugins/saving" in refusal
    assert not (tmp_path / "saved.py").exists()
