"""The documents: their Python blocks run, their links lead somewhere, the names of files they mention exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:thunder|thunder_core|tests|docs|scripts|benchmarks|examples)/[\w./-]*)`")
# What the README's first block takes for granted.
PREAMBLE = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
x = torch.randn(2, 4)
"""


def _identifier(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=_identifier)
def test_python_blocks_run(document, tmp_path):
    blocks = BLOCK.findall(document.read_text())
    if not blocks:
        pytest.skip("no Python in it")
    program = tmp_path / "blocks.py"
    program.write_text(PREAMBLE + "\n".join(blocks))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=_identifier)
def test_links_lead_somewhere(document):
    targets = [target for target in LINK.findall(document.read_text()) if "://" not in target]
    assert not [target for target in targets if not (document.parent / target).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=_identifier)
def test_mentioned_paths_exist(document):
    # A changelog speaks of the past.
    mentioned = [] if document.name == "CHANGELOG.md" else PATH.findall(document.read_text())
    assert not [path for path in mentioned if not (ROOT / path).exists()]
