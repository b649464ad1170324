"""The plugin of pytest: suites without files, collected only on request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from forked_pytest import PRELOADED, run_pytest

PLUGIN = "thunder_testing.pytest_plugin"


def run(folder: Path, *arguments: str, preloaded: Sequence[str] = PRELOADED) -> subprocess.CompletedProcess[str]:
    return run_pytest("-p", PLUGIN, "-W", "error", *arguments, directory=folder, preloaded=preloaded)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_nothing_is_imported():\n    assert 'torch' not in sys.modules\n"
    )
    return tmp_path


def test_import_is_light() -> None:
    program = (
        f"import sys, pytest; before = set(sys.modules); import {PLUGIN}; print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    light = ["thunder_core", "thunder_core.lazy_imports", PLUGIN.partition(".")[0], PLUGIN]
    assert done.stdout.strip() == str(light)


def test_without_options_it_does_nothing(folder: Path) -> None:
    done = run(folder, preloaded=["pytest"])
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


@pytest.mark.slow
def test_suites_without_files(folder: Path) -> None:
    done = run(folder, "--thunder-transform", "constant_folding", "-v", "-k", "views or test_nothing")
    assert done.returncode == 0, done.stdout
    for name in ("inference", "training", "repeatable"):
        assert f"transform constant_folding::views-{name} PASSED" in done.stdout
    assert "3 passed" in done.stdout
    assert "test_nothing" not in done.stdout


def offer(folder: Path, module: str, keyword: str, item: str) -> None:
    """A plugin of pytest that registers an object under a name, as a distribution's entry point does."""
    (folder / "offered.py").write_text(
        "from thunder.config import settings_of\n"
        "from thunder_core.passes.transform import Place\n"
        f"from thunder_testing.conformance import {module}\n"
        "import defective, defective_transforms\n"
        f"{module}.settings_of = lambda **options: settings_of(**options | {{'{keyword}': [{item}]}})\n"
    )


@pytest.mark.slow
def test_executors_and_files(folder: Path) -> None:
    offer(folder, "suite", "executors", "defective.claims()")
    words = "silu-forward or constants-inference or test_nothing"
    chosen = ("-p", "offered", "--thunder-executor", "kernels", "--thunder-transform", "constant_folding", "-k", words)
    done = run(folder, *chosen, "--collect-only", "-q", "test_other.py")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert "executor kernels::torch.nn.functional.silu-forward-float32-0" in lines
    assert "transform constant_folding::constants-inference" in lines
    assert "test_other.py::test_nothing_is_imported" in lines


@pytest.mark.slow
def test_failures_are_messages(folder: Path) -> None:
    item = "defective_transforms.at(Place.BEFORE_DIFFERENTIATION, defective_transforms.failing)"
    offer(folder, "transform_suite", "transforms", item)
    done = run(folder, "-p", "offered", "--thunder-transform", "defective", "-k", "pointwise-inference")
    assert done.returncode == 1, done.stdout
    head, _, rest = done.stdout.partition("defective, pointwise, inference: the rule of runs is broken")
    assert "KeyError: 'no such line'" in rest
    assert "Traceback" not in head


def test_unknown_names_are_explained(folder: Path) -> None:
    done = run(folder, "--thunder-executor", "my_kernals")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "executor my_kernals cannot be tested: " in done.stderr


@pytest.mark.parametrize("more", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "with workers"])
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (("reference", "--thunder-device", "gpu"), "reference cannot be tested: PyTorch cannot use the device 'gpu'"),
        (("my_kernals",), "executor my_kernals cannot be tested: "),
    ],
    ids=["device", "name"],
)
@pytest.mark.slow
def test_what_cannot_be_tested_is_a_usage_error(
    folder: Path, more: tuple[str, ...], chosen: tuple[str, ...], message: str
) -> None:
    done = run(folder, *more, "--thunder-executor", *chosen)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert message in done.stderr
    assert "What to do:" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "INTERNALERROR" not in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(folder: Path) -> None:
    done = run(folder, "--thunder-executor", "reference", "--thunder-device", "cuda")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "PyTorch cannot use the device 'cuda' here: " in done.stderr
    assert "name a device that it can use here: cpu" in done.stderr


def test_a_device_without_an_executor(folder: Path) -> None:
    done = run(folder, "--thunder-device", "cpu")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "none is named; add --thunder-executor NAME" in done.stderr
