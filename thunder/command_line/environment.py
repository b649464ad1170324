"""A description of a machine and its Python environment, for bug reports."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from thunder_core._version import __version__

_LIBRARIES: Final = ("numpy", "packaging", "pluggy", "pydantic", "PyYAML", "rich", "scipy", "triton", "typer")
_VARIABLES: Final = ("CUDA_", "MKL_", "NCCL_", "OMP_", "PYTORCH_", "THUNDER_", "TORCH", "TRITON_")
_DRIVER: Final = Path("/proc/driver/nvidia/version")


def facts(torch: Any) -> dict[str, str]:
    """Versions and devices by name, in the order in which they are printed.

    Args:
        torch: the module, or the exception that its import raised.
    """
    found = {
        "thunder": f"{__version__} (thunder-core {_version('thunder-core') or 'is not installed as a distribution'})",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
    }
    found |= _without_torch(torch) if isinstance(torch, BaseException) else _of_torch(torch)
    found["driver"] = driver() or "not found"
    found["libraries"] = _joined({name: _version(name) for name in _LIBRARIES}, " ")
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}
    found["environment"] = _joined(variables, "=")
    return found


def driver() -> str | None:
    """The version of NVIDIA's driver; None without a driver."""
    if _DRIVER.exists():
        match = re.search(r"\d+\.\d+(?:\.\d+)?", _DRIVER.read_text())
        if match is not None:
            return match[0]
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return "nvidia-smi timed out after 10 s"
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else f"nvidia-smi failed: {' '.join(done.stderr.split())}"


def _of_torch(torch: Any) -> dict[str, str]:
    found = {"torch": f"{torch.__version__}, {torch.get_num_threads()} threads", "cuda": _toolkit(torch)}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = f"compute capability {properties.major}.{properties.minor}"
        found[f"gpu {index}"] = f"{properties.name}, {capability}, {properties.total_memory / 2**30:.1f} GiB"
    return found


def _toolkit(torch: Any) -> str:
    if torch.version.hip is not None:
        return f"ROCm {torch.version.hip}"
    if torch.version.cuda is None:
        return "not in this build of PyTorch"
    return f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"


def _without_torch(error: BaseException) -> dict[str, str]:
    return {"torch": f"{_version('torch') or 'not installed'}; importing it raises {type(error).__name__}: {error}"}


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.MULTILINE)
        if match is not None:
            return match[1]
    return platform.processor() or platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _joined(found: dict[str, Any], between: str) -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in found.items() if value is not None) or "nothing set"
