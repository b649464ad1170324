"""``docs/command_line.md``: its sessions, typed in order in one directory of a fresh environment, print what they show.

``...`` stands for anything, as in doctests. What is under ``<!-- file: NAME -->`` is in that file.
"""

import doctest
import re

import pytest

from tests.command_line.environment import ROOT, environment_with_commands

DOCUMENT = ROOT / "docs" / "command_line.md"
PIECE = re.compile(
    r"^```console\n(?P<session>.*?)^```|^<!-- file: (?P<file>\S+) -->\n```\w+\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ (?P<line>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)


@pytest.mark.slow
def test_sessions_print_what_they_show(tmp_path):
    directory = tmp_path / "work"
    directory.mkdir()
    # Whatever else is installed here is not in the document.
    plugins = "my_kernels,composites,layouts,matmul,simplify,distributed,subclasses,torchscript"
    wrong = []
    with environment_with_commands(tmp_path / "environment") as environment:
        for piece in PIECE.finditer(DOCUMENT.read_text()):
            if piece["file"] is not None:
                (directory / piece["file"]).write_text(piece["text"])
                continue
            for command in COMMAND.finditer(piece["session"]):
                printed = environment.run(command["line"], directory, THUNDER_PLUGINS=plugins).stdout
                expected, actual = _plain(command["output"]), _plain(printed)
                if not doctest.OutputChecker().check_output(expected, actual, doctest.ELLIPSIS):
                    wrong.append(f"$ {command['line']}\n{printed}")
    assert not wrong, "\n".join(wrong)


def _plain(text):
    """Without what the names of other plugins decide: the widths of columns."""
    return re.sub(" {2,}", "  ", text)


def test_sessions_show_every_command():
    text = DOCUMENT.read_text()
    shown = {command["line"].split()[1] for command in COMMAND.finditer(text) if command["line"].startswith("thunder")}
    assert {"--help", "plugins", "doctor", "schema", "cache", "config", "explain", "simulate", "new"} <= shown
