"""The library ``nvidia-cudnn-frontend``, whose Python module is ``cudnn``, and the hardware."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from thunder_core.plugins import CheckResult

OLDEST: Final = 90500
"""cuDNN 9.5, the first whose backward of attention supports additive masks with lengths that are not multiples of 64.
"""
BROKEN: Final = (91000, 91001)
"""cuDNN 9.10.0 and 9.10.1, whose float16 and bfloat16 attention is wrong (release notes of 9.10.2)."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A GPU and its cuDNN.

    Attributes:
        capability: the GPU's compute capability.
        version: version of cuDNN: 91900 is 9.19.0.
    """

    capability: tuple[int, int]
    version: int


@cache
def frontend() -> Any:
    """The module ``cudnn``."""
    return importlib.import_module("cudnn")


@cache
def hardware(index: int | None) -> Hardware | None:
    """The CUDA device with this index; None if there is none."""
    if not torch.cuda.is_available():
        return None
    return Hardware(torch.cuda.get_device_capability(index), torch.backends.cudnn.version() or 0)


def unfit_version(version: int) -> str | None:
    """The reason why this version of cuDNN is not used; None if it is."""
    if version < OLDEST:
        return f"cuDNN {spelled(version)} is installed, and {spelled(OLDEST)} is needed"
    return f"cuDNN {spelled(version)} computes attention wrongly" if version in BROKEN else None


def spelled(version: int) -> str:
    """``9.19.0`` for 91900."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def check() -> CheckResult:
    """A check for ``thunder doctor``: loads the library, and compares its cuDNN with PyTorch's."""
    module = frontend()
    if not torch.cuda.is_available():
        return CheckResult(ok=True, text=f"frontend {module.__version__}; there is no CUDA device")
    of_frontend, of_pytorch = module.backend_version(), torch.backends.cudnn.version() or 0
    text = f"frontend {module.__version__}, cuDNN {spelled(of_frontend)}"
    if of_frontend != of_pytorch:
        advice = "remove the other cuDNN from LD_LIBRARY_PATH"
        return CheckResult(ok=False, text=f"{text}, and PyTorch uses {spelled(of_pytorch)}", advice=advice)
    reason = unfit_version(of_pytorch)
    return CheckResult(ok=reason is None, text=reason or text, advice="upgrade nvidia-cudnn" if reason else "")
