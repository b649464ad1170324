"""The files of this repository that measurements depend on."""

from __future__ import annotations

import hashlib
from pathlib import Path

from benchmarks.process import ROOT


def checksum() -> str:
    """A checksum of what is measured and how: the code of Thunder, of its plugins here and of the benchmarks.

    It is there without Git, and does not change with files that nothing measures. The documents, which models read, are
    part of it.
    """
    code = (ROOT / name for name in ("thunder", "thunder_core", "thunder_frontend", "benchmarks"))
    files = [path for folder in (*code, *ROOT.glob("plugins/*/src")) for path in folder.rglob("*")]
    read = [path for path in files if path.suffix in (".py", ".yaml")] + documents()
    found = hashlib.sha256()
    for path in sorted(read):
        found.update(f"{path.relative_to(ROOT)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def documents() -> list[Path]:
    """This repository's documents, whose bytes are the tokens of language models."""
    return [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
