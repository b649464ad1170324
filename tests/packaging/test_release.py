"""What ``scripts/release`` builds is what the repository has, and it finds what is missing in a wheel."""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "release"
RELEASE = runpy.run_path(str(SCRIPT))
FOLDERS: dict[str, Path] = RELEASE["distributions"]()
PROJECTS: dict[str, dict[str, Any]] = {
    name: tomllib.loads((folder / "pyproject.toml").read_text())["project"] for name, folder in FOLDERS.items()
}
CORE, COMPILER = "thunder-core", "thunder-compiler"


def required(name: str) -> set[str]:
    """What a distribution requires."""
    return {Requirement(text).name for text in PROJECTS[name]["dependencies"]}


def installed_with(name: str) -> set[str]:
    """The distributions of the repository that are installed with one, itself included."""
    return {name}.union(*(installed_with(other) for other in required(name) & PROJECTS.keys()))


def test_all_distributions_of_the_repository_are_released() -> None:
    command = ["git", "ls-files", "pyproject.toml", "*/pyproject.toml"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    folders = {(ROOT / path).parent for path in tracked.stdout.split() if not path.startswith(("examples/", "tests/"))}
    assert set(FOLDERS.values()) == folders


def test_requirements_are_the_distributions_that_one_command_installs() -> None:
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    folders = [(ROOT / line).resolve() for line in lines]
    assert sorted(folders) == sorted(FOLDERS[name] for name in installed_with(COMPILER))


def test_recommended_distributions_need_nothing_but_pytorch() -> None:
    """Except `triton`, which PyTorch for CUDA brings along; and no test tools."""
    tools = {"pytest", "hypothesis", "expecttest"}
    alone = {
        name
        for name, project in PROJECTS.items()
        if not any(extra.startswith("lib") for extra in project.get("optional-dependencies", {}))
        if not required(name) & tools
    }
    assert installed_with(COMPILER) == alone | {"thunder-plugin-triton"}
    assert PROJECTS[CORE]["optional-dependencies"]["recommended"] == [f"{COMPILER}>=0.1"]


def test_version_of_the_compiler_is_that_of_the_core() -> None:
    core = (ROOT / "thunder_core" / "_version.py").read_text()
    assert f'__version__ = "{PROJECTS[COMPILER]["version"]}"' in core


def test_each_distribution_has_the_license() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert not [name for name, folder in FOLDERS.items() if (folder / "LICENSE").read_bytes() != text]


def test_versions_of_python_are_the_same_everywhere() -> None:
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECTS[CORE]["classifiers"]))
    first, last = versions[0], versions[-1]
    below = f"3.{int(last.partition('.')[2]) + 1}"
    for name in (CORE, COMPILER):
        assert PROJECTS[name]["requires-python"] == f">={first},<{below}"
        assert re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECTS[name]["classifiers"])) == versions
    pair = [f"({version.replace('.', ', ')})" for version in (first, below, last)]
    assert f"if not {pair[0]} <= sys.version_info < {pair[1]}:" in (ROOT / "thunder" / "__init__.py").read_text()
    assert f"{pair[0]} <= sys.version_info[:2] <= {pair[2]}" in (ROOT / "scripts" / "environment").read_text()
    specifiers = {SpecifierSet(project["requires-python"]) for project in PROJECTS.values()}
    assert all(one.contains(version) for one in specifiers for version in versions)


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 15, 0)])
def test_other_versions_of_python_are_refused_at_import(version: tuple[int, ...]) -> None:
    program = f"import sys; sys.version_info = {version}; import thunder"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    expected = f"ImportError: Thunder needs Python 3.11 to 3.14, and this is 3.{version[1]}: guards read"
    assert expected in done.stderr.splitlines()[-1]


METADATA = """Metadata-Version: 2.4
Name: thunder-plugin-fast
Version: 0.2
Summary: Fast kernels
Author: The Thunder authors
Keywords: thunder
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Requires-Dist: thunder-core>=0.1
Requires-Dist: torch>=2.11
Requires-Dist: thunder-testing>=0.1; extra == "test"
Provides-Extra: test
Classifier: Development Status :: 3 - Alpha
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Software Development :: Compilers
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

# thunder-plugin-fast
"""
ENTRY_POINTS = "[thunder.plugin_api]\nfast = 1\n\n[thunder.plugins]\nfast = thunder_plugin_fast.plugin\n"
INFO = "thunder_plugin_fast-0.2.dist-info/"
FILES = {
    "thunder_plugin_fast/__init__.py": "",
    "thunder_plugin_fast/plugin.py": "",
    "thunder_plugin_fast/py.typed": "",
    f"{INFO}METADATA": METADATA,
    f"{INFO}entry_points.txt": ENTRY_POINTS,
    f"{INFO}licenses/LICENSE": "Apache License",
}


def wheel(folder: Path, files: dict[str, str]) -> Path:
    path = folder / f"{files[f'{INFO}METADATA'].split()[3]}-0.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def others(folder: Path) -> list[Path]:
    """Wheels of what the plugin requires."""
    libraries = []
    for name in (CORE, "thunder-testing"):
        text = METADATA.replace("thunder-plugin-fast", name).replace("0.2", "0.1")
        text = "\n".join(line for line in text.splitlines() if not line.startswith("Requires-Dist: thunder"))
        libraries.append(wheel(folder, {f"{INFO}METADATA": text, f"{INFO}licenses/LICENSE": "Apache License"}))
    return libraries


@pytest.mark.parametrize(
    ("file", "text", "replacement", "problem"),
    [
        ("METADATA", "", "", None),
        ("METADATA", "Summary: Fast kernels\n", "", "no Summary"),
        ("METADATA", "License-Expression: Apache-2.0\n", "", "no License-Expression"),
        ("METADATA", "# thunder-plugin-fast\n", "", "no README in Markdown"),
        ("METADATA", "text/markdown", "text/plain", "no README in Markdown"),
        ("METADATA", "Classifier: Typing :: Typed\n", "", "no classifier Typing :: Typed..."),
        ("METADATA", "core>=0.1", "core>=0.2", "it requires thunder-core>=0.2; built: 0.1"),
        ("METADATA", "testing>=0.1", "testing>=1", 'it requires thunder-testing>=1; extra == "test"; built: 0.1'),
        ("METADATA", "core>=0.1", "cores", "it requires thunder-cores; built: no such distribution"),
        (
            "METADATA",
            "core>=0.1",
            "core @ file:///home/me",
            "it requires thunder-core @ file:///home/me, a place that others do not have",
        ),
        (
            "entry_points.txt",
            "fast.plugin",
            "fast.plugins",
            "the entry point fast of thunder.plugins is not in the wheel: thunder_plugin_fast.plugins",
        ),
        ("entry_points.txt", "fast = 1", "slow = 1", "thunder.plugin_api has other names than thunder.plugins"),
    ],
)  # fmt: skip
def test_what_is_missing_in_the_metadata_of_a_wheel_is_named(
    tmp_path: Path, file: str, text: str, replacement: str, problem: str | None
) -> None:
    changed = FILES | {f"{INFO}{file}": FILES[f"{INFO}{file}"].replace(text, replacement)}
    path = wheel(tmp_path, changed)
    expected = [] if problem is None else [f"{path.name}: {problem}"]
    assert RELEASE["wheel_problems"]([path, *others(tmp_path)]) == expected


@pytest.mark.parametrize(
    ("added", "removed", "problem"),
    [
        ("thunder_plugin_fast/tests/test_it.py", None, "thunder_plugin_fast/tests/test_it.py is not for users"),
        (None, "thunder_plugin_fast/py.typed", "no thunder_plugin_fast/py.typed"),
        (None, f"{INFO}licenses/LICENSE", "no text of the license"),
    ],
)
def test_what_is_wrong_with_the_files_of_a_wheel_is_named(
    tmp_path: Path, added: str | None, removed: str | None, problem: str
) -> None:
    files = {name: text for name, text in FILES.items() if name != removed} | ({added: ""} if added else {})
    path = wheel(tmp_path, files)
    assert RELEASE["wheel_problems"]([path, *others(tmp_path)]) == [f"{path.name}: {problem}"]


def test_files_that_differ_between_two_wheels_are_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = wheel(tmp_path, FILES)
    second = wheel(tmp_path / "other", FILES | {"thunder_plugin_fast/plugin.py": "x = 1", "more.py": ""})
    assert RELEASE["different_files"](first, first) == set()
    assert RELEASE["different_files"](first, second) == {"thunder_plugin_fast/plugin.py", "more.py"}


def test_options_are_described_without_an_environment() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True)
    assert all(option in done.stdout for option in ("--output", "--no-smoke", "--python", "--index", "--dirty"))
    assert not done.stderr


@pytest.mark.slow
def test_the_environment_has_what_was_required_and_nothing_of_the_checkout(tmp_path: Path) -> None:
    environment = RELEASE["Environment"](tmp_path, sys.executable, index=False)
    environment.create()
    environment.provide([Requirement("pydantic>=2; python_version > '3'")])
    environment.run("python", "-c", "import pydantic, pydantic_core")
    for name in ("packaging", "thunder"):
        with pytest.raises(Exception, match="this command failed with exit code 1") as raised:
            environment.run("python", "-c", f"import {name}")
        assert type(raised.value).__name__ == "ReleaseError"
    with pytest.raises(Exception, match=r"has no thunder-absent>=1. Update it \(scripts/environment examples\)"):
        environment.provide([Requirement("thunder-absent>=1")])
    with pytest.raises(Exception, match=r"files of the checkout were opened:\n  .*/thunder_core/_version.py"):
        environment.run("python", "-c", f"import runpy; runpy.run_path('{ROOT}/thunder_core/_version.py')")


def test_artifacts_are_written_with_their_checksums_and_beside_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = [wheel(tmp_path, FILES), *others(tmp_path)]
    release, output = RELEASE["release"], tmp_path / "output"
    replaced = {"build": lambda *_: ([], wheels), "run": lambda *_, **__: None, "check_clean": lambda _: None}
    for name, function in replaced.items():  # what builds, what runs twine, and what asks git
        monkeypatch.setitem(release.__globals__, name, function)
    options = RELEASE["parsed"](["--no-smoke", "--output", str(output)])
    for _ in range(2):  # the second replaces the first
        release(tmp_path, options)
    names = sorted(path.name for path in wheels)
    sums = dict(reversed(line.split()) for line in (output / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((output / name).read_bytes()).hexdigest() for name in names}
    (output / "old-0.1-py3-none-any.whl").touch()
    with pytest.raises(Exception, match=r"has other files: old-0.1-py3-none-any.whl. Remove them"):
        release(tmp_path, options)
    (output / "old-0.1-py3-none-any.whl").unlink()
    wheel(tmp_path, FILES | {"thunder_plugin_fast/tests/test_it.py": ""})
    with pytest.raises(Exception, match=r"the wheels have problems:\n  thunder-plugin-fast-0.2-py3-none-any.whl: "):
        release(tmp_path, options)
    assert sums[wheels[0].name] == hashlib.sha256((output / wheels[0].name).read_bytes()).hexdigest()


def test_files_that_differ_from_the_commit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (
        ("init", "-q"),
        ("-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "first", "--allow-empty"),
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    check = RELEASE["check_clean"]
    values = {"ROOT": tmp_path, "output": partial(RELEASE["output"], folder=tmp_path)}
    for name, value in values.items():
        monkeypatch.setitem(check.__globals__, name, value)
    check(dirty=False)
    (tmp_path / "new.py").touch()
    check(dirty=True)
    with pytest.raises(Exception, match=r"commit them, or build with --dirty:\n\?\? new.py"):
        check(dirty=False)
