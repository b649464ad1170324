"""Tables: what a terminal shows, and what a pipe gets."""

import errno
import io
import os
import pty
import re
import subprocess
import sys

import pytest

from tests.command_line.conftest import ROOT
from thunder.command_line.output import Column, print_json, print_table

COLUMNS = [
    Column("COUNT", right=True),
    Column("NAME"),
    Column("STATE", styles={"ok": "green"}),
    Column("WHY", wraps=True),
]
LONG = "because " * 40
ROWS = [["1", "one", "ok", ""], ["10", "[two]", "failed", LONG + "\nof this"]]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_pipe_gets_a_line_for_each_row_however_long(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_table(COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "COUNT  NAME  STATE  WHY",
        "1  one  ok  -",
        f"10  [two]  failed  {LONG}of this",
    ]


def test_pipe_keeps_the_indentation_of_a_cell(capsys):
    print_table([Column("A"), Column("B")], [["  x", "y"]])
    assert capsys.readouterr().out == "A  B\n  x  y\n"


def test_table_without_rows_has_its_titles(capsys):
    print_table([Column("A"), Column("B")], [])
    assert capsys.readouterr().out == "A  B\n"


def test_terminal_gets_all_of_the_text_in_its_width(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("TERM", "xterm")
    print_table(COLUMNS, ROWS)
    text = capsys.readouterr().out
    assert re.search(r"\x1b\[32mok *\x1b\[0m", text)
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(COLUMNS, ROWS)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 50
    assert text.count("because") == 40


@pytest.mark.parametrize("width", [60, 30])
def test_names_stay_in_one_piece(capsys, monkeypatch, width):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    name = "torch.nn.functional.rms_norm"
    print_table([Column("NAME"), Column("WHY", wraps=True)], [[name, LONG]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"{name}  because")
    assert "".join(lines).count("because") == 40
    assert (max(map(len, lines)) <= width) is (len(lines) > 2)  # too narrow: a line for each row
    assert (len(lines) > 2) is (width == 60)


def test_a_column_that_is_cut_takes_one_line(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    print_table([Column("NAME"), Column("WHY", cut=True)], [["one", LONG], ["another", "short"]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME     WHY",
        "one      because because because beca...",
        "another  short",
    ]


def test_terminal_does_not_show_empty_columns(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(COLUMNS, ROWS[:1])
    assert "WHY" not in capsys.readouterr().out


def test_json_of_anything(capsys):
    print_json({"path": ROOT, "text": "ä"})
    assert capsys.readouterr().out == f'{{\n  "path": "{ROOT}",\n  "text": "\\u00e4"\n}}\n'


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["colours", "none"])
@pytest.mark.slow
def test_command_on_a_terminal(tmp_path, variables, coloured):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "70", **variables}
    line = [sys.executable, "-m", "thunder", "plugins"]
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        running = subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        text = _read_until_closed(terminal).decode()  # while it runs: a terminal holds 4 KiB
        errors = running.communicate()[1]
    assert (running.returncode, errors) == (0, b"")
    assert ("\x1b[" in text) is coloured
    if not coloured:
        assert max(len(line.rstrip()) for line in text.splitlines()) <= 70


def _read_until_closed(terminal: io.RawIOBase) -> bytes:
    """All that is written to the other end of a terminal; Linux reports its end as an input/output error."""
    parts = []
    try:
        while part := terminal.read(1 << 16):
            parts.append(part)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    return b"".join(parts)
