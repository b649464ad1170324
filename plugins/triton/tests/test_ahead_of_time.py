"""All kernels compile for a GPU that is not there: Triton's interpreter, in which the other tests run, takes more."""

from __future__ import annotations

import ast
import json
import os
from importlib.resources import files
from pathlib import Path

import pytest

from thunder_testing.forked import run_forked


def kernels() -> set[str]:
    """Functions of the package that Triton compiles and that are launched from Python: the others have a `_`."""
    found = set()
    for file in files("thunder_plugin_triton").iterdir():
        if file.name.endswith("_kernels.py"):
            tree = ast.parse(file.read_text())
            names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
            found |= {f"{file.name.removesuffix('.py')}.{name}" for name in names if not name.startswith("_")}
    return found


@pytest.mark.slow
def test_kernels_compile_for_hopper(tmp_path: Path) -> None:
    """With all block sizes; in a sample (`tests.batteries`) with the first one, and one of the others."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "THUNDER_CACHE_DIR": ""}
    script = Path(__file__).with_name("ahead_of_time.py")
    seed = os.environ.get("THUNDER_TEST_SEED")
    result = run_forked(script, *([seed] if seed else []), environment=environment, preloaded=["torch"])
    assert result.returncode == 0, result.stderr
    compiled = json.loads(result.stdout)
    assert compiled.keys() == kernels()
    assert compiled["rms_norm_kernels.gradients_of_rows"] == (2 if seed else 8)  # each candidate, or two
