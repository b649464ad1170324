"""What a result depends on: machine, versions, commit."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.process import ROOT
from thunder import __version__

PACKAGES = ("torch", "litgpt", "transformers", "numpy")


def describe(threads: int) -> dict[str, object]:
    """The circumstances of a run, as plain data."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short=12", "HEAD") + ("+changes" if _git("status", "--porcelain") else ""),
        "python": platform.python_version(),
        "versions": {"thunder": __version__} | {name: _version(name) for name in PACKAGES},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
