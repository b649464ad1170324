"""The documents: their Python blocks run, the outputs they show are the real ones, their links lead somewhere.

A block of text under ``<!-- output: EXPRESSION -->`` is the value of the expression after the Python blocks before it.
``UPDATE_DOCUMENTS=1 pytest tests/docs`` rewrites these blocks; look at the difference before committing it.
"""

import linecache
import os
import re
import runpy
import sys
import tomllib
import types
from pathlib import Path

import pytest

from thunder.command_line import pytorch_versions

ROOT = Path(__file__).resolve().parents[2]
# Plugins test their READMEs themselves.
FOLDERS = (
    ROOT,
    *(
        ROOT / name
        for name in ("docs", "docs/reference", "docs/tutorials", "benchmarks", "plugins/fusion", "plugins/testing")
    ),
)
DOCUMENTS = sorted(path for folder in FOLDERS for path in folder.glob("*.md"))
PIECE = re.compile(
    r"^```python\n(?P<code>.*?)^```|^<!-- output: (?P<expression>.*?) -->\n```text\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
PATH = re.compile(
    r"`((?:thunder|thunder_core|thunder_frontend|tests|docs|scripts|benchmarks|examples|plugins)/[\w./-]*)`"
)
# ARCHITECTURE.md names files and Python objects, which are checked as well.
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w]+\.py)`")
NAME = re.compile(r"`([A-Z]\w+|_\w+|[a-z]+(?:_[a-z]+)+)`")
# What the README's first block takes for granted.
PREAMBLE = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
x = torch.randn(2, 4)
"""


def _identifier(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A module for a document's blocks, whose sources are files in the working directory."""
    module = types.ModuleType("program")
    monkeypatch.setitem(sys.modules, "program", module)
    monkeypatch.chdir(tmp_path)
    return module


def _run(program: types.ModuleType, code: str, number: int) -> None:
    path = Path("program.py" if number == 1 else f"program_{number}.py")
    path.write_text(code)
    linecache.cache.pop(str(path), None)  # of a document before this one
    exec(compile(code, str(path), "exec"), program.__dict__)


@pytest.mark.parametrize("document", DOCUMENTS, ids=_identifier)
@pytest.mark.battery
def test_python_blocks_run_and_give_what_is_shown(document, program, capsys):
    text = document.read_text()
    exec(PREAMBLE, program.__dict__)
    blocks = 0
    rewritten = text
    for piece in PIECE.finditer(text):
        if piece["code"] is not None:
            blocks += 1
            _run(program, piece["code"], blocks)
            continue
        value = str(eval(piece["expression"], program.__dict__)).strip("\n") + "\n"
        if os.environ.get("UPDATE_DOCUMENTS"):
            rewritten = rewritten.replace(piece[0], piece[0].replace(f"```text\n{piece['text']}", f"```text\n{value}"))
        else:
            assert piece["text"] == value, "run UPDATE_DOCUMENTS=1 pytest tests/docs to accept"
    if rewritten != text:
        document.write_text(rewritten)


@pytest.mark.parametrize("document", DOCUMENTS, ids=_identifier)
def test_links_lead_somewhere(document):
    text = FENCED.sub("", document.read_text())
    targets = [target for target in LINK.findall(text) if "://" not in target]
    assert not [target for target in targets if not (document.parent / target).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=_identifier)
def test_mentioned_paths_exist(document):
    # A changelog speaks of the past.
    mentioned = [] if document.name == "CHANGELOG.md" else PATH.findall(document.read_text())
    assert not [path for path in mentioned if not (ROOT / path).exists()]


def test_files_without_a_folder_are_in_a_folder_named_before():
    missing = []
    for paragraph in _paragraphs():
        for file in FILE.finditer(paragraph):
            paths = [ROOT / path for path in PATH.findall(paragraph[: file.start()])]
            folders = [path if path.is_dir() else path.parent for path in paths]
            if not any(True for folder in folders for _ in folder.rglob(file[1])):
                missing.append(file[1])
    assert not missing


@pytest.mark.slow
def test_names_of_the_architecture_are_names_in_the_code():
    """Each is defined or imported in a Python file. One in lower case may be PyTorch's, if it occurs there."""
    names = {name for paragraph in _paragraphs() for name in NAME.findall(paragraph)}
    folders = ("thunder", "thunder_core", "thunder_frontend", "plugins", "tests", "benchmarks")
    code = "\n".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    definitions = re.findall(r"^\s*(?:class|def) (\w+)|^\s*(\w+)(?:: [^=\n]*)? = ", code, re.MULTILINE)
    known = {name for pair in definitions for name in pair}
    for imports in re.findall(r"^(?:from [\w.]+ )?import .*", code, re.MULTILINE):
        known.update(re.findall(r"\w+", imports))
    words = set(re.findall(r"\w+", code))
    assert not sorted(name for name in names - known if not (name.islower() and name in words))


def _paragraphs() -> list[str]:
    """The paragraphs, list items and rows of tables of ARCHITECTURE.md, without blocks of code and output."""
    return re.split(r"\n(?=\n|- |\|)", FENCED.sub("", ARCHITECTURE.read_text()))


def test_architecture_is_short():
    assert ARCHITECTURE.stat().st_size <= 25_000


def test_scripts_run_the_versions_that_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scripts/test` runs the version that `scripts/environment` installs, `scripts/check` those of the groups."""
    environment = (ROOT / "scripts" / "environment").read_text()
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    others = [groups[f"pytorch-{name}"][0].removeprefix("torch==") for name in ("oldest", "newest")]
    monkeypatch.delenv("THUNDER_CHECK_VERSIONS", raising=False)
    tested = runpy.run_path(str(ROOT / "scripts" / "check"))["tested_versions"]()
    assert [version.partition(":")[0] for version in tested] == others
    (installed,) = re.findall(r"^torch=\$\{THUNDER_TORCH:-(.*)\}$", environment, re.MULTILINE)
    assert sorted([installed, *others]) == sorted(pytorch_versions.SUITES)


def test_readme_lists_the_versions_that_are_tested():
    text = (ROOT / "README.md").read_text()
    assert sorted(re.findall(r"^\| (2\.\d+\.\d+) \|", text, re.MULTILINE)) == sorted(pytorch_versions.SUITES)
    assert f"were tried with {' and '.join(pytorch_versions.FIRST_CALLS)}." in text


def test_support_says_which_versions_are_tested():
    assert f"\n{pytorch_versions.tested_versions()}\n" in (ROOT / "docs" / "support.md").read_text()
