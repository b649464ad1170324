"""``thunder new``: names that it takes and refuses, and what it writes."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import thunder
from thunder_core.plugins import API

TEXT = {".md", ".py", ".toml"}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def _written(command, folder, name, *options):
    """What the command has written: the folder, whose files it has listed, and the lines that it has printed."""
    ended = command("new", name, *options)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    files = _files(folder / name)
    assert [f"  {path.relative_to(folder / name)}" for path in files] == lines[1 : lines.index("Next:")]
    return folder / name, lines


def test_writes_a_distribution_and_says_what_is_next(command, tmp_path):
    folder, lines = _written(command, tmp_path, "fast_norms")
    assert lines[0] == "Created fast_norms, the distribution thunder-plugin-fast-norms:"
    files = _files(folder)
    assert {path.suffix for path in files} == TEXT
    after = lines[lines.index("Next:") + 1 :]
    assert after[0] == '  pip install --editable "fast_norms[test]"'
    assert project(folder)["optional-dependencies"]["test"] == [f"thunder-testing>={thunder.__version__}"]


def test_a_front_end_in_place_of_a_kernel(command, tmp_path):
    folder, lines = _written(command, tmp_path, "fast_chains", "--front-end")
    files = _files(folder)
    assert {path.suffix for path in files} == TEXT
    assert lines[-1] == "  pytest fast_chains"
    text = "".join(path.read_text() for path in files)
    assert "thunder_front_ends" in text
    assert not {"my_kernels", "my-kernels", "{version}", "{api}", "executor_suite"} & set(re.split(r"[^\w{}-]", text))
    assert project(folder)["entry-points"]["thunder.plugins"] == {"fast_chains": "fast_chains"}


def test_a_transform_in_place_of_a_kernel(command, tmp_path):
    folder, lines = _written(command, tmp_path, "my_pass", "--transform")
    files = _files(folder)
    assert lines[-2:] == ["  pytest my_pass", "  thunder explain program.py:model --transforms my_pass"]
    text = "".join(path.read_text() for path in files)
    assert "thunder_transforms" in text
    assert not {"my_kernels", "my-kernels", "{version}", "{api}", "executor_suite"} & set(re.split(r"[^\w{}-]", text))
    assert project(folder)["entry-points"]["thunder.plugins"] == {"my_pass": "my_pass"}
    ended = command("new", "other", "--transform", "--front-end")
    assert (ended.code, ended.out) == (2, "")
    assert "--front-end and --transform exclude each other" in ended.err


def test_the_package_that_the_tests_need_is_named_where_it_is_not_installed(command, monkeypatch):
    monkeypatch.setattr("thunder.command_line.new.find_spec", lambda name: None)
    lines = command("new", "fast_norms").out.splitlines()
    plugins = Path(__file__).resolve().parents[2] / "plugins"
    assert lines[lines.index("Next:") + 1] == f"  pip install {plugins / 'fusion'} {plugins / 'testing'}"


def test_the_name_is_everywhere_and_nothing_is_left_of_the_templates(command, tmp_path):
    command("new", "fast-norms", "--directory", str(tmp_path))
    text = "".join(path.read_text() for path in _files(tmp_path / "fast_norms"))
    assert "my_kernels" not in text
    assert "my-kernels" not in text
    assert "{version}" not in text
    assert "{api}" not in text
    assert not [path for path in _files(tmp_path) if "my_kernels" in str(path) or path.suffix == ".template"]
    found = project(tmp_path / "fast_norms")
    assert found["name"] == "thunder-plugin-fast-norms"
    assert found["entry-points"]["thunder.plugins"] == {"fast_norms": "fast_norms"}
    assert found["entry-points"]["thunder.plugin_api"] == {"fast_norms": str(API)}
    assert f"thunder-core>={thunder.__version__}" in found["dependencies"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2fast", "'2fast' is not a valid package name"),
        ("Fast", "lower-case letters"),
        ("fast.norms", "is not a valid package name"),
        ("../fast", "is not a valid package name"),
        ("fäst", "is not a valid package name"),
        ("lambda", "is not a valid package name"),
        ("", "is not a valid package name"),
        ("a" * 41, "the limit is 40"),
        ("json", "Python has a module 'json'"),
        ("thunder", "thunder-core installs a package 'thunder'"),
        ("torch", "torch installs a package 'torch'"),
        ("core", "thunder-core has a plugin 'core'"),
        ("debug", "thunder-plugin-debug has a plugin 'debug'"),
        ("thunder-plugin-debug", "a module 'thunder_plugin_debug' exists"),
    ],
)
def test_names_that_are_refused(command, tmp_path, name, message):
    ended = command("new", name)
    assert (ended.code, ended.out) == (2, "")
    assert "Invalid value for NAME" in ended.err
    assert message in ended.err
    assert not _files(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_nothing_is_overwritten(command, tmp_path, kind):
    existing = tmp_path / "fast_norms"
    existing.mkdir() if kind == "folder" else existing.write_text("mine")
    ended = command("new", "fast_norms")
    assert (ended.code, ended.out) == (2, "")
    assert "fast_norms exists" in ended.err
    assert existing.is_dir() == (kind == "folder")
    assert not existing.is_dir() or not list(existing.iterdir())


def test_directory_must_exist(command):
    ended = command("new", "fast_norms", "--directory", "absent")
    assert ended.code == 2
    assert "'absent' does not exist" in ended.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_directory_that_may_not_be_written(command, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    ended = command("new", "fast_norms", "--directory", "locked")
    assert (ended.code, ended.out) == (1, "")
    assert "could not be written" in ended.err


def test_failure_to_write_is_no_traceback(command, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    ended = command("new", "fast_norms")
    assert (ended.code, ended.out) == (1, "")
    assert "fast_norms could not be written: [Errno 28] No space left on device" in ended.err


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff comes with the extra `dev`, not with `test`")
@pytest.mark.parametrize("options", [(), ("--front-end",), ("--transform",)])
@pytest.mark.parametrize("name", ["a", "my_kernels", "a_plugin_with_quite_a_long_name_in_it"])
@pytest.mark.slow
def test_what_is_written_is_formatted_and_has_no_lint(command, tmp_path, name, options):
    command("new", name, *options)
    for arguments in (["check"], ["format", "--check"]):
        line = [sys.executable, "-m", "ruff", *arguments, "--no-cache", str(tmp_path / name)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_author_has_little_to_write(command, tmp_path):
    command("new", "fast_norms")
    package = tmp_path / "fast_norms" / "src" / "fast_norms"
    code = [
        line
        for name in ("kernels.py", "executor.py")
        for line in (package / name).read_text().splitlines()
        if line.strip() and not line.strip().startswith(("#", '"""', "import", "from"))
    ]
    assert len(code) <= 40


def test_json(command, tmp_path):
    found = json.loads(command("new", "my_kernels", "--json").out)
    assert found["distribution"] == "thunder-plugin-my-kernels"
    assert all((tmp_path / found["folder"] / file).is_file() for file in found["files"])
    assert "pytest my_kernels" in found["next"]
