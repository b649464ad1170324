"""Real distributions, installed by pip into a separate environment, most of them broken in some way."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from thunder_testing.forked import LIBRARIES, run_forked

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = sorted((Path(__file__).parent / "distributions").iterdir())


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with Thunder's wheel and all fixtures; PyTorch comes from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    outer = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "outer.pth").write_text("".join(f"{path}\n" for path in outer))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python), "install"]
    # What the outer environment has is not replaced.
    options = ["--ignore-installed", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [*pip, *options, str(ROOT), *map(str, DISTRIBUTIONS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return python


def _run(environment: Path, folder: Path, program: str, **variables: str) -> Any:
    """What the program prints, as JSON. It runs away from the checkout, with the modules of the environment alone.

    Its process is forked from one that has imported PyTorch, whose path becomes that of the environment.
    """
    path = folder / "program.py"
    path.write_text(f"import sys\nsys.path[1:] = {_search_path(environment)!r}\n{program}")
    done = run_forked(path, environment=_inherited() | variables, directory=folder, preloaded=LIBRARIES)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@functools.cache
def _search_path(environment: Path) -> list[str]:
    """Where an interpreter of the environment looks for modules, after the folder of the script."""
    command = [environment, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    done = subprocess.run(command, env=_inherited(), capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("THUNDER", "PYTHON"))}


RECORDS = """
import json, sys
from thunder_core.plugins.host import host

records = [
    (record.name, record.distribution, record.version, record.state.value, record.advice) for record in host().records
]
imported = [name for name in sys.modules if name.startswith(("thunder_fixture", "torch"))]
print(json.dumps({"records": records, "imported": imported}))
"""

EXPECTED = [
    ("broken_import", "thunder-fixture-broken-import", "available", ""),
    ("clash", "thunder-fixture-clash-a", "name clash", "pip uninstall thunder-fixture-clash-a"),
    ("clash", "thunder-fixture-clash-b", "name clash", "pip uninstall thunder-fixture-clash-b"),
    ("future_api", "thunder-fixture-stale-api", "API mismatch", "pip install --upgrade thunder-core"),
    ("good", "thunder-fixture-good", "available", ""),
    (
        "missing_library",
        "thunder-fixture-missing-library",
        "library missing",
        "pip install 'thunder-fixture-missing-library[lib]'",
    ),
    ("misspelt_hook", "thunder-fixture-misspelt-hook", "available", ""),
    ("needs_newer_core", "thunder-fixture-needs-newer-core", "version conflict", "pip install 'thunder-core>=99'"),
    ("slow", "thunder-fixture-slow", "available", ""),
    ("stale_api", "thunder-fixture-stale-api", "API mismatch", "pip install --upgrade thunder-fixture-stale-api"),
    ("version_conflict", "thunder-fixture-version-conflict", "version conflict", "pip install 'torch>=99'"),
]


@pytest.mark.slow
def test_states_are_known_without_importing_anything(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RECORDS)
    command = [environment, tmp_path / "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=_inherited(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["records"][0][:2] == ["core", "thunder-core"]
    fixtures = [record for record in found["records"] if record[1].startswith("thunder-fixture")]
    assert fixtures == [[name, source, "1.0", state, advice] for name, source, state, advice in EXPECTED]
    assert found["imported"] == []


NOT_NAMED = """
import json, sys, time
import torch, thunder

discovered = "thunder_core.plugins.discovery" in sys.modules

def program(x):
    return torch.sin(x).sum()

x = torch.ones(3, requires_grad=True)
compiled = thunder.jit(program)
equal = torch.equal(compiled(x), program(x))
gradient = torch.autograd.grad(compiled(x), x)[0]
equal_gradient = torch.equal(gradient, torch.cos(x))
imported = [name for name in sys.modules if name.startswith("thunder_fixture")]
print(json.dumps([thunder.__file__, discovered, equal, equal_gradient, imported]))
"""


@pytest.mark.slow
def test_broken_plugins_that_nobody_names_are_harmless(environment: Path, tmp_path: Path) -> None:
    file, discovered, equal, equal_gradient, imported = _run(environment, tmp_path, NOT_NAMED)
    assert Path(file).is_relative_to(environment.parents[1])
    assert not discovered
    assert equal
    assert equal_gradient
    assert imported == []


NAMED = """
import json, sys
import torch, thunder
from thunder_core.errors import ThunderError

answers = {{}}
for name in {names}:
    try:
        thunder.jit(torch.sin, executors=[name])(torch.ones(2))
        answers[name] = "it works"
    except ThunderError as error:
        answers[name] = str(error)
print(json.dumps([answers, "thunder_fixture_slow" in sys.modules]))
"""

# For each name: the text of the error, and the command that repairs it.
ERRORS = {
    "broken_import": (
        r"__init__.py:3",
        "ZeroDivisionError: division by zero",
        "distributions/broken_import, from which it was installed",
    ),
    "clash": (
        "thunder-fixture-clash-a 1.0 and thunder-fixture-clash-b 1.0",
        "pip uninstall thunder-fixture-clash-a",
        "pip uninstall thunder-fixture-clash-b",
    ),
    "stale_api": ("number 0 of the plugin interface", "pip install --upgrade thunder-fixture-stale-api"),
    "future_api": ("number 99 of the plugin interface", "pip install --upgrade thunder-core"),
    "missing_library": (
        "it needs thunder-fixture-no-such-library, which is not installed",
        "pip install 'thunder-fixture-missing-library[lib]'",
    ),
    "version_conflict": ("it needs torch>=99, and torch 2.", "pip install 'torch>=99'"),
    "needs_newer_core": ("it needs thunder-core>=99, and thunder-core", "pip install 'thunder-core>=99'"),
    "misspelt_hook": (
        "there is no hook thunder_executers; did you mean 'thunder_executors'?",
        "distributions/misspelt_hook, from which it was installed",
    ),
    "good.absent": ("offers no executor 'absent'", "it offers executors: good"),
}


@pytest.fixture(scope="module")
def answers(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    program = NAMED.format(names=[*ERRORS, "good"])
    found, slow_is_imported = _run(environment, tmp_path_factory.mktemp("named"), program)
    assert not slow_is_imported
    return found


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.slow
def test_naming_a_broken_plugin_says_how_to_repair_it(answers: dict[str, str], name: str) -> None:
    for part in ERRORS[name]:
        assert part in answers[name]


def test_the_others_work_beside_them(answers: dict[str, str]) -> None:
    assert answers["good"] == "it works"


@pytest.mark.slow
def test_a_name_that_nobody_has_is_looked_for_everywhere(environment: Path, tmp_path: Path) -> None:
    found, slow_is_imported = _run(environment, tmp_path, NAMED.format(names=["goood", "slow"]))
    assert "did you mean 'good'?" in found["goood"]
    assert "clash (name clash)" in found["goood"]
    assert found["slow"] == "it works"
    assert slow_is_imported


GOOD = """
import json
import torch, thunder
from thunder_core.plugins import CheckSpec
from thunder_core.plugins.host import host
from thunder_fixture_good.operations import double_sine
from thunder_fixture_good.transform import counts

def program(x):
    return double_sine(x, scale=1.0).exp()

def names(function, stage):
    return [line.symbol.name for line in thunder.last_traces(function)[stage].symbols]

x = torch.linspace(0, 1, 5, requires_grad=True)
compiled = thunder.jit(program, executors=["good"], transforms=["count_lines"])
with torch.no_grad():
    equal = torch.equal(compiled(x), program(x))
lines = names(compiled, 0), names(compiled, -1)
gradients = [torch.autograd.grad(function(x).sum(), x)[0] for function in (compiled, program)]
small = thunder.jit(program, config="good_preset", executors=[{"good": {"largest": 3}}])
with torch.no_grad():
    small(x)
checks = [host().import_object(check)().text for check in host().offered(CheckSpec) if check.plugin.name == "good"]
print(json.dumps({
    "equal": equal,
    "acquired": lines[0],
    "executed": lines[1],
    "close": torch.allclose(*gradients, rtol=1e-6),
    "declined": names(small, -1),
    "counts": counts,
    "checks": checks,
}))
"""


@pytest.mark.slow
def test_one_of_everything(environment: Path, tmp_path: Path) -> None:
    found = _run(environment, tmp_path, GOOD, THUNDER_STRICT="0", THUNDER_PLUGINS="good")
    assert found["equal"]
    assert found["close"]
    # The row leaves the default away.
    assert found["acquired"] == ["thunder_fixture_good.operations.double_sine", "torch.exp"]
    assert "fast_double_sine" in found["executed"][0]
    assert found["declined"][0] == "thunder_fixture_good.operations.double_sine"
    assert found["counts"]
    assert found["checks"] == ["doubling works"]


HARMLESS = ("good", "missing-library", "slow")

STRICT = """
import json
from thunder_core.errors import PluginError
from thunder_core.plugins.host import host

try:
    host().load_all()
except PluginError as error:
    print(json.dumps([error.problem, error.advice]))
"""


def test_strict_lists_all_defects(environment: Path, tmp_path: Path) -> None:
    problem, advice = _run(environment, tmp_path, STRICT, THUNDER_STRICT="1")
    defects = {source for _, source, *_ in EXPECTED} - {f"thunder-fixture-{name}" for name in HARMLESS}
    assert all(source in problem for source in defects)
    assert not [name for name in HARMLESS if f"thunder-fixture-{name}" in problem]
    assert any("distributions/misspelt_hook, from which it was installed" in item for item in advice)
