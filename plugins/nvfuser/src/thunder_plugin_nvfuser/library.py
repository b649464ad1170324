"""The module ``nvfuser_direct``, or the reason why it cannot be loaded."""

from __future__ import annotations

import importlib
from importlib.metadata import packages_distributions, version
from typing import Any

import torch

from thunder_core.plugins import CheckResult

MODULE = "nvfuser_direct"


def load_library() -> Any:
    """Import the module.

    Raises:
        ImportError: the import fails; the message contains advice.
    """
    try:
        return importlib.import_module(MODULE)
    except Exception as error:  # builds for another PyTorch or CUDA raise various exceptions
        raise ImportError(_advice(error)) from error


def check() -> CheckResult:
    """A check for ``thunder doctor``: imports nvFuser."""
    try:
        load_library()
    except ImportError as error:
        return CheckResult(False, str(error).partition("; ")[0], str(error).partition("; ")[2])
    if not torch.cuda.is_available():
        return CheckResult(False, f"{installed()} can be imported, and there is no CUDA device", "use another executor")
    return CheckResult(True, f"{installed()} can be imported")


def installed() -> str:
    """The distribution of the module, with its version."""
    names = packages_distributions().get(MODULE, [])
    return f"{names[0]} {version(names[0])}" if names else MODULE


def _advice(error: Exception) -> str:
    """The problem, and advice after a semicolon."""
    words = " ".join(str(error).split())
    problem = f"{installed()} does not load with PyTorch {torch.__version__}"
    if "MessageLogger" in words and "undefined symbol" in words:
        return f"{problem}, which lacks c10::MessageLogger; preload the shim that the README describes (PyTorch 2.11)"
    if isinstance(error, ModuleNotFoundError) and error.name == MODULE:
        return f"there is no module {MODULE}; install the nvFuser of this PyTorch and CUDA: nvfuser-cu130-torch210, ..."
    detail = f"{type(error).__name__}: {words}"
    return f"{problem} ({detail[:90]}); install the nvFuser that was built for it: nvfuser-cuXXX-torchYYY"
