"""The example programs run and report what they promise."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from thunder_testing.forked import run_forked

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join([*filter(None, [environment.pop("PYTHONPATH", "")]), str(ROOT)])
    variables = os.environ | {"PYTHONPATH": search} | environment
    command = (sys.executable, "-W", "ignore", *command)
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


def _run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked(ROOT / "examples" / name, *arguments, directory=ROOT, path=[ROOT])


def test_compile_llama():
    done = _run_script("compile_llama.py", "--layers", "2", "--sequence", "16")
    assert done.returncode == 0, done.stderr
    for expected in ("Outputs equal eager's: yes", "def computation", "def prologue", "cache hits / misses"):
        assert expected in done.stdout


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_train_llama(optimizer, tmp_path):
    plot, figures = tmp_path / "losses.png", tmp_path / "figures.json"
    size = ["--steps", "8", "--layers", "2", "--optimizer", optimizer]
    done = _run_script("train_llama.py", *size, "--plot", str(plot), "--json", str(figures))
    assert done.returncode == 0, done.stderr
    assert "later steps, median" in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    result = json.loads(figures.read_text())
    expected, losses = result["eager"]["losses"], result["thunder"]["losses"]
    assert losses == pytest.approx(expected, rel=1e-4)
    assert result["largest difference"] <= 1e-4
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.1


def test_train_llama_fsdp():
    command = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "examples/train_llama_fsdp.py")
    done = _run(*command, "--steps", "4", "--layers", "1")
    assert done.returncode == 0, done.stderr
    eager, compiled = re.findall(r"loss (\S+) -> (\S+),", done.stdout)
    assert [float(loss) for loss in compiled] == pytest.approx([float(loss) for loss in eager], abs=2e-4)
    assert float(compiled[1]) < float(compiled[0])


def test_train_ddp():
    """Eager, and the wrapper around a compiled module and compiled itself."""
    command = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "examples/train_ddp.py")
    done = _run(*command, "--steps", "3", "--layers", "1", "--accumulate", "2")
    assert done.returncode == 0, done.stderr
    eager, *compiled = re.findall(r"loss (\S+) -> (\S+),", done.stdout)
    assert len(compiled) == 2
    for losses in compiled:
        assert [float(loss) for loss in losses] == pytest.approx([float(loss) for loss in eager], abs=2e-4)
    assert float(eager[1]) < float(eager[0])


def test_the_readme_shows_what_the_program_gives(tmp_path):
    """Its text is fixed, so its losses are, and the plot that the README's command writes is ignored by git."""
    figures = tmp_path / "figures.json"
    done = _run_script("train_llama.py", "--steps", "2", "--json", str(figures))
    readme = (ROOT / "README.md").read_text()
    (length,) = re.findall(r"bytes of a text of [\d,]+", done.stdout)
    assert length in readme
    (shown,) = re.findall(r"loss of the first step +(\S+)", readme)
    assert json.loads(figures.read_text())["eager"]["losses"][0] == pytest.approx(float(shown), abs=2e-4)
    (plot,) = re.findall(r"scripts/demo --plot (\S+)", readme)
    assert subprocess.run(["git", "check-ignore", "--quiet", plot], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(("missing", "options"), [("litgpt", []), ("matplotlib", ["--plot", "losses.png"])])
def test_train_llama_names_what_is_missing(missing, options, tmp_path):
    # A finder that finds everything but this package, at the start of the process.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else find(name, *rest)\n"
    )
    done = _run("examples/train_llama.py", *options, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert f"This example needs {missing}. Install" in done.stderr
    assert "Traceback" not in done.stderr
