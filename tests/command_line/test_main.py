"""The command itself: help, version, exit codes, and how it ends."""

import json
import os
import subprocess
import sys

import pytest

import thunder
from tests.command_line.conftest import ROOT
from thunder.command_line import main as module
from thunder_core.errors import ThunderError

COMMANDS = (["plugins"], ["doctor"], ["schema"], ["cache"], ["config"], ["config", "check"], ["explain"], ["new"])

IMPORTED = """
import sys
from thunder.command_line.main import main
code = main(sys.argv[1:])
heavy = {"torch", "numpy", "scipy", "rich", "pluggy", "yaml"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else code)
"""


def test_help_names_every_command_and_the_exit_codes(command):
    ended = command("--help")
    assert (ended.code, ended.err) == (0, "")
    for name in ("plugins", "doctor", "schema", "cache", "config", "explain", "show", "new"):
        (line,) = [line for line in ended.out.splitlines() if line.startswith(f"  {name} ")]
        assert len(line.split()) > 3
        assert not line.endswith("..."), "the summary does not fit"
    assert "Exit codes: 0 success" in ended.out


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_explains_every_option_and_argument(command, path):
    ended = command(*path, "--help")
    assert ended.code == 0
    summary, *parameters = ended.out.split("\n\n")[1:]
    assert summary.strip().endswith(".")
    for paragraph in parameters:
        title, *lines = paragraph.splitlines()
        if title in ("Arguments:", "Options:", "Commands:"):
            entries = [line.split("  ", 2) for line in lines if line[2] != " "]
            assert entries
            assert all(len(entry) == 3 and entry[2].strip() for entry in entries), paragraph


def test_help_is_plain_text_of_the_width_asked_for(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    narrow = command("explain", "--help").out
    assert max(map(len, narrow.splitlines())) <= 60
    assert "\x1b" not in narrow


def test_help_imports_nothing_heavy():
    line = [sys.executable, "-c", IMPORTED, "explain", "--help"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_version(command):
    assert command("--version").out == f"thunder {thunder.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plugin"], "No such command 'plugin'"),
        (["plugins", "--jsn"], "No such option: --jsn"),
        (["explain"], "Missing argument 'PROGRAM'"),
        (["config", "check", "absent.yaml"], "absent.yaml: file not found"),
    ],
)
def test_what_is_no_command_is_a_usage_error(command, arguments, message):
    ended = command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert "Usage: thunder" in ended.err


@pytest.mark.parametrize("arguments", [[], ["config"]], ids=["thunder", "thunder config"])
def test_no_command_shows_the_help_as_an_error(command, arguments):
    ended = command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == command(*arguments, "--help").out


def test_errors_of_thunder_have_no_traceback(command, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ThunderError("it is broken", advice=("repair it",))

    monkeypatch.setattr(module, "app", fail)
    ended = command("plugins")
    assert (ended.code, ended.out, ended.err) == (1, "", "it is broken\nWhat to do:\n  - repair it\n")


def test_other_errors_are_raised(command, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(module, "app", fail)
    with pytest.raises(ZeroDivisionError):
        command("plugins")


@pytest.mark.parametrize("arguments", [["plugins"], ["--help"], ["plugins", "--json"]], ids=" ".join)
@pytest.mark.slow
def test_reader_that_leaves_early_causes_no_traceback(tmp_path, arguments):
    read, write = os.pipe()
    os.close(read)  # as `thunder plugins | true`
    line = [sys.executable, "-m", "thunder", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", ["plugins", "--help"])
def test_closed_output_causes_no_traceback(tmp_path, arguments):
    line = ["sh", "-c", f"exec '{sys.executable}' -m thunder {arguments} >&-"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_an_error_without_traceback(tmp_path):
    line = [sys.executable, "-m", "thunder", "--help"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"thunder: the output could not be written")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_any_character_can_be_printed(shell, tmp_path):
    (tmp_path / "program.py").write_text("import torch\n\ndef größe(x): return x + 1\n")
    given = ("explain", "program.py:größe", "--inputs", "torch.ones(2)")
    ended = shell(*given, PYTHONIOENCODING="ascii")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("program.py:gr\\xf6\\xdfe: 1 program; ")
    ended = shell(*given, "--json", PYTHONIOENCODING="ascii")
    assert json.loads(ended.out)["program"] == "program.py:größe"
