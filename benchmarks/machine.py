"""Description of the machine, package versions and commit, for result files."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from benchmarks import sources
from benchmarks.process import ROOT
from thunder import __version__

PACKAGES = ("torch", "triton", "litgpt", "transformers", "torchvision", "timm", "diffusers", "numpy")


def describe(threads: int) -> dict[str, object]:
    """The environment of a measurement, as plain data."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "sources": sources.checksum(),
        "python": platform.python_version(),
        "versions": {"thunder": __version__} | {name: _version(name) for name in PACKAGES} | _plugins(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
    }


def commit() -> str:
    """The commit of this checkout, with ``+changes`` if there are any; empty without Git."""
    return _git("rev-parse", "--short=12", "HEAD") + ("+changes" if _git("status", "--porcelain") else "")


def device(name: str) -> dict[str, Any]:
    """Type, name and versions of a device: ``auto``, ``cpu`` or ``cuda``.

    Call this in a separate process for CUDA, because it allocates memory of the device.

    Raises:
        RuntimeError: ``cuda`` is not available.
    """
    cpu = {"type": "cpu", "name": "CPU"}
    if name == "cpu":
        return cpu
    import torch

    if name == "auto" and not torch.cuda.is_available():
        return cpu
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device is available to PyTorch; use --device cpu")
    major, minor = torch.cuda.get_device_capability()
    properties = {"type": "cuda", "name": torch.cuda.get_device_name(), "capability": f"{major}.{minor}"}
    return properties | {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


def _plugins() -> dict[str, str]:
    """The installed packages with plugins for Thunder, and their versions."""
    packages = [point.dist for point in entry_points(group="thunder.plugins") if point.dist]
    return {distribution.name: distribution.version for distribution in packages if distribution.name != "thunder-core"}


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
