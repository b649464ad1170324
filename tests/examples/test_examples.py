"""The example programs run and report what they promise."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from thunder_testing.forked import PRELOADED, run_forked, run_torchrun

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = (*PRELOADED, "litgpt")
"""What the server of the processes imports: all examples use LitGPT, which takes two seconds of each process else."""


def _run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked(ROOT / "examples" / name, *arguments, directory=ROOT, path=[ROOT], preloaded=IMPORTED)


def _run_processes(name: str, *arguments: str, folder: Path) -> str:
    """What two processes of torchrun print."""
    program = f"import runpy; runpy.run_path({str(ROOT / 'examples' / name)!r}, run_name='__main__')"
    done = run_torchrun(program, *arguments, folder=folder, directory=ROOT, preloaded=IMPORTED)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_compile_llama():
    done = _run_script("compile_llama.py", "--layers", "2", "--sequence", "16")
    assert done.returncode == 0, done.stderr
    for expected in ("Outputs equal eager's: yes", "def computation", "def prologue", "cache hits / misses"):
        assert expected in done.stdout


@pytest.mark.slow
def test_finetune_qlora(tmp_path):
    done = _run_script("finetune_qlora.py", "--layers", "1", "--steps", "2", "--adapters", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for expected in ("5 x NF4Tensor", "Losses equal eager's: yes", "Adapters saved, loaded and merged"):
        assert expected in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def _trained(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What eight steps print, and their figures. The plot of the losses is a picture."""
    plot, figures = folder / "losses.png", folder / "figures.json"
    done = _run_script("train_llama.py", "--steps", "8", *options, "--plot", str(plot), "--json", str(figures))
    assert done.returncode == 0, done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    return done.stdout, json.loads(figures.read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The model and the optimizer of the README."""
    return _trained(tmp_path_factory.mktemp("trained"))


def _losses_are_those_of_eager_and_fall(printed: str, figures: dict[str, Any]) -> None:
    assert "later steps, median" in printed
    expected, losses = figures["eager"]["losses"], figures["thunder"]["losses"]
    assert losses == pytest.approx(expected, rel=1e-4)
    assert figures["largest difference"] <= 1e-4
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.slow
def test_train_llama(trained):
    _losses_are_those_of_eager_and_fall(*trained)


@pytest.mark.slow
def test_train_llama_by_sgd(tmp_path):
    _losses_are_those_of_eager_and_fall(*_trained(tmp_path, "--layers", "2", "--optimizer", "sgd"))


@pytest.mark.slow
def test_train_llama_fsdp(tmp_path):
    printed = _run_processes("train_llama_fsdp.py", "--steps", "4", "--layers", "1", folder=tmp_path)
    eager, compiled = re.findall(r"loss (\S+) -> (\S+),", printed)
    assert [float(loss) for loss in compiled] == pytest.approx([float(loss) for loss in eager], abs=2e-4)
    assert float(compiled[1]) < float(compiled[0])


@pytest.mark.slow
def test_train_ddp(tmp_path):
    """Eager, and the wrapper around a compiled module and compiled itself."""
    options = ("--steps", "3", "--layers", "1", "--accumulate", "2")
    eager, *compiled = re.findall(r"loss (\S+) -> (\S+),", _run_processes("train_ddp.py", *options, folder=tmp_path))
    assert len(compiled) == 2
    for losses in compiled:
        assert [float(loss) for loss in losses] == pytest.approx([float(loss) for loss in eager], abs=2e-4)
    assert float(eager[1]) < float(eager[0])


_PRETRAIN = "litgpt/pretrain.py"


def _of_litgpt(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The model of a checkpoint, which LitGPT creates and loads, and its state dict."""
    import lightning
    import litgpt
    from litgpt.utils import load_checkpoint

    model = litgpt.GPT(litgpt.Config.from_file(folder / "model_config.yaml"))
    load_checkpoint(lightning.Fabric(accelerator="cpu", devices=1), model, folder / "lit_model.pth")
    return model, model.state_dict()


@pytest.mark.slow
def test_pretrain_litgpt(tmp_path):
    """Checkpoints are those of eager, LitGPT reads them, and training continues with them."""
    options = ("--set", "n_layer=1", "--accelerator", "cpu", "--accumulate", "2")
    printed = {}
    for name, more in {
        "eager": ("--steps", "4", "--compiler", "none"),
        "thunder": ("--steps", "4", "--validate-every", "2", "--save-every", "2"),
        "resumed": ("--steps", "4", "--resume", str(tmp_path / "thunder" / "step-00000002")),
    }.items():
        done = _run_script(_PRETRAIN, *options, *more, "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        printed[name] = done.stdout
    assert "tokens/s" in printed["thunder"]
    first, last = (float(loss) for loss in re.findall(r"validation loss (\S+),", printed["thunder"]))
    assert last < first
    model, expected = _of_litgpt(tmp_path / "eager" / "final")
    for name in ("thunder", "resumed"):
        torch.testing.assert_close(_of_litgpt(tmp_path / name / "final")[1], expected, rtol=1e-3, atol=1e-4)
    assert model(torch.arange(8)[None]).shape == (1, 8, 256)


@pytest.mark.battery
def test_pretrain_litgpt_on_two_processes(tmp_path):
    options = ("--set", "n_layer=1", "--accelerator", "cpu", "--steps", "2", "--accumulate", "2")
    results = {}
    for strategy, compiler in (("ddp", "none"), ("ddp", "thunder"), ("fully_shard", "thunder")):
        folder = tmp_path / f"{strategy}_{compiler}"
        folder.mkdir()
        more = ("--strategy", strategy, "--compiler", compiler, "--out", str(folder))
        _run_processes(_PRETRAIN, *options, *more, folder=folder)
        results[strategy, compiler] = _of_litgpt(folder / "final")[1]
    for result in results.values():
        torch.testing.assert_close(result, results["ddp", "none"], rtol=1e-3, atol=1e-4)


def test_the_readme_shows_what_the_program_gives(trained):
    """Its text is fixed, so its losses are, and the plot that the README's command writes is ignored by git."""
    printed, figures = trained
    readme = (ROOT / "README.md").read_text()
    (length,) = re.findall(r"bytes of a text of [\d,]+", printed)
    assert length in readme
    (shown,) = re.findall(r"loss of the first step +(\S+)", readme)
    assert figures["eager"]["losses"][0] == pytest.approx(float(shown), abs=2e-4)
    (plot,) = re.findall(r"scripts/demo --plot (\S+)", readme)
    assert subprocess.run(["git", "check-ignore", "--quiet", plot], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(("missing", "options"), [("litgpt", []), ("matplotlib", ["--plot", "losses.png"])])
def test_train_llama_names_what_is_missing(missing, options):
    # A finder that finds everything but this package.
    program = (
        "import importlib.util, runpy\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else find(name, *rest)\n"
        "runpy.run_path('examples/train_llama.py', run_name='__main__')\n"
    )
    done = run_forked(program, *options, directory=ROOT, preloaded=IMPORTED)
    assert done.returncode == 1
    assert f"This example needs {missing}. Install" in done.stderr
    assert "Traceback" not in done.stderr
