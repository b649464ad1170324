"""The set-up scripts: clear words when something is missing, nothing done twice."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "environment"


def _run(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    return _environment(THUNDER_ENV=str(tmp_path / "environment"), PYTHON=python)


def _environment(**variables: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("THUNDER_", "PYENV_"))}
    return subprocess.run([SCRIPT, "examples"], env=outside | variables, capture_output=True, text=True, check=False)


def _program(path: Path, text: str) -> str:
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_missing_python_is_named(tmp_path):
    done = _run(tmp_path, "no-such-python")
    assert done.returncode == 1
    assert "no 'no-such-python' found. Install Python 3.11 to 3.14" in done.stderr


def test_old_python_is_refused(tmp_path):
    old = _program(tmp_path / "python3.9", '[[ $1 == --version ]] && echo "Python 3.9.1"; exit 1\n')
    done = _run(tmp_path, old)
    assert done.returncode == 1
    assert "Python 3.9.1 is not supported. Set PYTHON to a Python 3.11 to 3.14" in done.stderr


def _stamps(environment: Path, torch: str) -> None:
    """The output of an environment that was created for this checkout."""
    plugins = sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    content = "".join([path.read_text() for path in (ROOT / "pyproject.toml", *plugins, ROOT / "constraints.txt")])
    (environment / "bin").mkdir(parents=True)
    (environment / ".thunder-examples").write_text(f"{content}{torch}\n")
    (environment / ".thunder-checkout").write_text(f"{ROOT}\n")


def test_an_unchanged_environment_is_reused(tmp_path):
    environment = tmp_path / "environment"
    _stamps(environment, "2.13.0")
    _program(environment / "bin" / "python", "exit 1\n")
    done = _run(tmp_path, sys.executable)
    assert (done.returncode, done.stdout.strip()) == (0, str(environment / "bin" / "python")), done.stderr


# An interpreter that answers which PyTorch there is, and writes the arguments of pip down.
_INTERPRETER = """
case "$1 $2" in
"-m pip") echo "${@:3}" >>"$(dirname "$0")/pip.log" ;;
-c*version*) echo 2.15.0+cu132 ;;
esac
"""

_DISK = "echo Filesystem Blocks Used Available; echo disk 0 0 {kilobytes}\n"


def test_environments_are_kept_by_version_and_pointed_to_the_checkout(tmp_path):
    """The last checkout was another one: nothing is installed but the links to this one."""
    version = "{}.{}".format(*sys.version_info)
    environment = tmp_path / "thunder-environments" / f"torch-2.15.0-python{version}"
    _stamps(environment, "2.15.0")
    (environment / ".thunder-checkout").write_text("/somewhere/else\n")
    _program(environment / "bin" / "python", _INTERPRETER)
    variables = {"XDG_CACHE_HOME": str(tmp_path), "THUNDER_TORCH": "2.15.0", "PYTHON": sys.executable}
    done = _environment(**variables)
    assert (done.returncode, done.stdout.strip()) == (0, str(environment / "bin" / "python")), done.stderr
    (installed,) = (environment / "bin" / "pip.log").read_text().splitlines()
    assert " install " in installed
    assert " --no-build-isolation --no-deps " in installed
    assert f"--editable {ROOT}[examples]" in installed
    assert f"--editable {ROOT}/plugins/triton" in installed
    _environment(**variables)
    assert len((environment / "bin" / "pip.log").read_text().splitlines()) == 1


@pytest.mark.parametrize(("torch", "constrained"), [("2.15.0", False), ("2.13.0", True)])
def test_newest_dependencies_with_the_newest_torch(tmp_path, torch, constrained):
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    _program(environment / "bin" / "python", _INTERPRETER.replace("2.15.0+cu132", torch))
    assert _environment(THUNDER_ENV=str(environment), THUNDER_TORCH=torch).returncode == 0
    (installed,) = (environment / "bin" / "pip.log").read_text().splitlines()
    assert (f"--constraint {ROOT}/constraints.txt" in installed) == constrained


def test_tools_of_a_dependency_group_are_installed_once(tmp_path):
    environment = tmp_path / "tools"
    (environment / "bin").mkdir(parents=True)
    log = environment / "bin" / "pip.log"
    _program(environment / "bin" / "python", f'[[ $2 != pip ]] || exec echo "$@" >>{log}\nexec {sys.executable} "$@"\n')
    for _ in range(2):
        done = _tools("release", environment)
        assert (done.returncode, done.stdout.strip()) == (0, str(environment / "bin" / "python")), done.stderr
    (installed,) = log.read_text().splitlines()
    assert installed.endswith(" hatchling>=1.26 twine>=6.1")
    done = _tools("relaese", environment)
    assert done.returncode == 1
    assert "pyproject.toml has no dependency group 'relaese', only" in done.stderr


def _tools(group: str, environment: Path) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT, "--group", group, environment]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_environment_with_another_torch_is_refused(tmp_path):
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    _program(environment / "bin" / "python", _INTERPRETER)
    done = _environment(THUNDER_ENV=str(environment), THUNDER_TORCH="2.11.0")
    assert done.returncode == 1
    assert "has PyTorch 2.15.0+cu132, not 2.11.0" in done.stderr


def test_versions_of_python_are_looked_for(tmp_path):
    """On PATH, where a program may be pyenv's that fails, and then among pyenv's versions."""
    programs, versions = tmp_path / "programs", tmp_path / "versions"
    for folder in (programs, versions / "3.12.1" / "bin"):
        folder.mkdir(parents=True)
    _program(programs / "python3.12", "exit 127\n")
    _program(programs / "df", _DISK.format(kilobytes=50 << 20))
    path = f"{programs}:{os.environ['PATH']}"
    variables = {"PATH": path, "PYENV_ROOT": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "THUNDER_TORCH": "2.11.0"}
    done = _environment(**variables, PYTHON="3.77")
    assert done.returncode == 1
    assert "no Python 3.77 found" in done.stderr
    answers = (
        "[[ $2 == *ensurepip* ]] && exit 0; [[ $2 == *print* ]] && echo 3.12; [[ $2 == venv ]] && exit 1; exit 0\n"
    )
    _program(versions / "3.12.1" / "bin" / "python", answers)
    done = _environment(**variables, PYTHON="3.12")
    place = f"{tmp_path}/thunder-environments/torch-2.11.0-python3.12"
    assert f"Creating an environment in {place}" in done.stderr
    assert "could not create a virtual environment" in done.stderr
    _program(programs / "df", _DISK.format(kilobytes=5 << 20))
    done = _environment(**variables, PYTHON="3.12")
    assert done.returncode == 1
    assert f"there are 5 GB of disk space for {place}, and an environment takes up to 12 GB" in done.stderr


@pytest.mark.parametrize("script", ["environment", "demo", "test", "check", "docs", "release"])
def test_scripts_are_executable_and_parse(script):
    path = ROOT / "scripts" / script
    assert os.access(path, os.X_OK)
    if path.read_text().startswith("#!/usr/bin/env python3\n"):
        compile(path.read_text(), str(path), "exec")
    else:
        subprocess.run(["bash", "-n", path], check=True)


def _check(tmp_path: Path, source: str, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A run of ``scripts/check`` with other steps, where PATH has bash and some programs."""
    script = (ROOT / "scripts" / "check").read_text()
    start, end = script.index("def steps("), script.index("def of_version(")
    program = tmp_path / "scripts" / "check"
    program.parent.mkdir(exist_ok=True)
    program.write_text(script[:start] + source + "\n\n" + script[end:])
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    path = tmp_path / "programs"
    path.mkdir()
    (path / "bash").symlink_to(shutil.which("bash"))
    for name, text in programs.items():
        _program(path / name, text)
    variables = {**os.environ, "THUNDER_CHECK_VERSIONS": "", "PATH": str(path)}
    return subprocess.run([sys.executable, program], env=variables, capture_output=True, text=True, check=False)


STEPS = """
def steps(versions):
    times = {{str(n): float(n) for n in range(9)}}
    tests = f'import json, os; json.dump({{times}}, open(os.environ["THUNDER_TEST_TIMES"], "w"))'
    yield Step("first", (sys.executable, "-c", tests), 1000)
    yield Step("second", (sys.executable, "-c", tests + "; raise SystemExit({code})"), {budget})
    yield Step("third", ("false",), 1)
"""


@pytest.mark.parametrize(
    ("code", "budget", "outcome"), [(3, 1000, "FAILED with exit code 3"), (0, 1e-9, "FAILED: over its budget")]
)
@pytest.mark.slow
def test_a_check_ends_at_the_first_failure_with_the_times_of_its_steps(tmp_path, code, budget, outcome):
    done = _check(tmp_path, STEPS.format(code=code, budget=budget), {"chromium": ""})
    assert done.returncode == 1
    table = done.stdout[done.stdout.index("step  ") :]
    assert [line.split()[0] for line in table.splitlines()[1:4]] == ["first", "second", "all"]
    assert outcome in table
    slowest = [line.split()[-1] for line in table.splitlines() if " s  " in line]
    assert slowest == ([] if code else ["8", "7", "6", "5", "4"])


# Root on Debian runs the step that has the tests of the explorer's page.
TESTS = """
os.geteuid = lambda: 0
platform.freedesktop_os_release = lambda: {{"ID": "{system}"}}

def steps(versions):
    yield Step("tests", (sys.executable, "-c", "import shutil; print('found', shutil.which('chromium'))"), 1000)
"""
INSTALL = """
cd "${0%/*}"
echo "$@" >>../apt.log
[[ $1 != install ]] || {install}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "install", "skipped"),
    [
        ("debian", "PATH=/usr/bin:/bin ln -s bash chromium", None),
        (
            "debian",
            "{ echo E: Unable to fetch; exit 100; }",
            "did not install Chromium, exit code 100: E: Unable to fetch",
        ),
        ("ubuntu", "exit 1", "there is no Chromium; only root on Debian"),
    ],
)
def test_a_check_installs_chromium_before_the_tests(tmp_path, system, install, skipped):
    done = _check(tmp_path, TESTS.format(system=system), {"apt-get": INSTALL.replace("{install}", install)})
    assert done.returncode == 0, done.stderr
    if skipped is None:
        assert f"found {tmp_path / 'programs' / 'chromium'}" in done.stdout
        assert "skipped, " not in done.stdout.replace("PyTorch: skipped, THUNDER_CHECK_VERSIONS", "")
    else:
        assert "found None" in done.stdout
        (line,) = [
            each for each in done.stdout.splitlines() if each.startswith("Tests of the explorer's page: skipped, ")
        ]
        assert skipped in line
    log = tmp_path / "apt.log"
    commands = [each.split()[0] for each in log.read_text().splitlines()] if log.exists() else []
    assert commands == (["update", "install"] if system == "debian" else [])


@pytest.mark.slow
def test_a_check_with_a_browser_installs_none(tmp_path):
    done = _check(tmp_path, TESTS.format(system="debian"), {"apt-get": ">apt.log", "google-chrome": ""})
    assert done.returncode == 0, done.stderr
    assert "explorer" not in done.stdout
    assert not (tmp_path / "apt.log").exists()
