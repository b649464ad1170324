"""What compiled code depends on besides the program: the machine, PyTorch, Python."""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from pathlib import Path

import torch

from thunder_core._version import __version__


@cache
def software() -> str:
    """Versions of Python and PyTorch, and the code of this package: everything that is stored comes from all of it."""
    python = ".".join(map(str, sys.version_info))
    build = torch.version.git_version
    thunder = f"thunder-core {__version__} {source_hash('thunder_core')}"
    return f"{sys.implementation.cache_tag} {python}; torch {torch.__version__} {build}; {thunder}"


def hardware(device: torch.device) -> str:
    """The device as compilers see it. For a CPU with the number of threads that compiled loops are divided among."""
    if device.type == "cpu":
        return f"{_processor()}, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        return _gpu(torch.cuda.current_device() if device.index is None else device.index)
    return str(device)


@cache
def _processor() -> str:
    """Instructions differ between processors of one family: kernels are compiled for this one."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = platform.processor()
    lines = [
        line for line in text.split("\n\n")[0].splitlines() if line.startswith(("model name", "flags", "Features"))
    ]
    return f"{platform.machine()} {hashlib.sha256(''.join(lines or [text]).encode()).hexdigest()[:16]}"


@cache
def _gpu(index: int) -> str:
    found = torch.cuda.get_device_properties(index)
    runtime = torch.version.cuda or torch.version.hip
    return f"{found.name} {found.major}.{found.minor}, {found.multi_processor_count} processors, {runtime}"


def source_hash(package: str) -> str:
    """Of the Python files in the folder of an imported package: code that changed makes other artifacts."""
    return _source_hash(Path(str(sys.modules[package].__file__)).parent)


@cache
def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
