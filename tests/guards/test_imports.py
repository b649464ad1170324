"""What runs while a module is imported is not part of the program that imports it."""

from __future__ import annotations

import importlib
import importlib.abc
import os
import sys
import time
from pathlib import Path

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning

NAME = "imported_by_a_program"
BODY = f"""
import os
import time

import torch

GENERATOR = torch.Generator()
GENERATOR.manual_seed(3)
with open(__file__) as file:
    LINES = len(file.readlines())
STARTED = time.time()
HOME = os.environ.get("{NAME}")
SCALE = 2.0
"""
X = torch.arange(3.0)


class Finder(importlib.abc.MetaPathFinder):
    """As that of pytest: code from outside of the standard library, which looks at files and at its state."""

    def __init__(self) -> None:
        self.calls = 0

    def find_spec(self, name, path, target=None):
        self.calls += 1
        os.path.exists(f"{os.getcwd()}/{name}.py")
        with open(__file__) as file:
            file.readline()
        return None


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{NAME}.py").write_text(BODY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    sys.modules.pop(NAME, None)


def test_reads_of_an_import_are_none_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        import imported_by_a_program as module

        return x * module.SCALE

    compiled = thunder.jit(program)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 2)
        monkeypatch.setenv(NAME, "another")
    sys.modules[NAME].SCALE = 3.0
    assert torch.equal(compiled(X), X * 3)
    assert thunder.cache_misses(compiled) <= 3  # the first, the new entry of sys.modules, the other scale


def test_names_that_are_imported_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * importlib.import_module(NAME).SCALE

    compiled = thunder.jit(program)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 2)


def test_failed_imports_end() -> None:
    """What is read after them is the program's again."""

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            import not_there_at_all  # noqa: F401
        except ImportError:
            return x * (time.time() > 0)
        return x

    compiled = thunder.jit(program)
    with pytest.warns(UncacheableWarning, match=r"time\.time"):
        assert torch.equal(compiled(X), X)


def test_modules_that_run_again_at_each_call_are_of_the_program(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.py").write_text("import time\nSCALE = 2.0 * (time.time() > 0)\n")
    module = importlib.import_module(NAME)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * importlib.reload(module).SCALE

    compiled = thunder.jit(program)
    with pytest.warns(UncacheableWarning, match=r"time\.time"):
        assert torch.equal(compiled(X), X * 2)


def test_a_program_that_runs_while_a_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.py").write_text(
        "import time, torch, thunder\n"
        "@thunder.jit\n"
        "def program(x):\n    return x + (time.time() > 0)\n"
        "result = program(torch.zeros(1))\n"
    )
    with pytest.warns(UncacheableWarning, match=r"time\.time"):
        assert importlib.import_module(NAME).result.item() == 1


@pytest.mark.parametrize("by_name", [False, True])
def test_a_module_that_makes_tensors_when_it_is_imported(tmp_path: Path, by_name: bool) -> None:
    """They are tensors of the module, as if it had been imported before."""
    (tmp_path / f"{NAME}.py").write_text(
        "import torch\n"
        "class Layer(torch.nn.Linear):\n    pass\n"
        "TABLE = torch.arange(3.0).cos()\n"
        "LAYER = torch.nn.utils.skip_init(Layer, 3, 3)\n"
        "torch.nn.init.eye_(LAYER.weight)\n"
        "torch.nn.init.ones_(LAYER.bias)\n"
    )

    def program(x: torch.Tensor) -> torch.Tensor:
        if by_name:
            module = importlib.import_module("imported_by_a_program")
        else:
            import imported_by_a_program as module
        with torch.no_grad():
            return module.LAYER(x * module.TABLE)

    x = torch.ones(3)
    compiled = thunder.jit(program)
    first = compiled(x)
    module = sys.modules[NAME]
    torch.testing.assert_close(first, module.TABLE + 1)
    assert type(module.TABLE) is torch.Tensor
    assert all(type(parameter) is torch.nn.Parameter for parameter in module.LAYER.parameters())
    torch.testing.assert_close(compiled(x), program(x))
    module.TABLE = torch.full((3,), 5.0)
    torch.testing.assert_close(compiled(x), torch.full((3,), 6.0))
    assert thunder.explain(compiled).fallbacks == {}


def test_a_module_that_is_imported_calls_compiled_programs_and_modes(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.py").write_text(
        "import torch, thunder\n"
        "with torch.device('meta'):\n    SHAPE = torch.ones(2)\n"
        "DOUBLED = thunder.jit(lambda x: x * 2)(torch.ones(2))\n"
        "TOTAL = DOUBLED.sum().item()\n"
    )

    def program(x: torch.Tensor) -> torch.Tensor:
        import imported_by_a_program as module

        return x + module.TOTAL + module.DOUBLED + len(module.SHAPE)

    compiled = thunder.jit(program)
    assert [compiled(torch.zeros(2)).tolist() for _ in range(2)] == [[8.0, 8.0]] * 2
    assert sys.modules[NAME].SHAPE.device.type == "meta"
