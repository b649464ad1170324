"""The compilers that Inductor needs: C++ for a CPU, Triton for a GPU."""

from __future__ import annotations

from functools import cache

import torch

from thunder_core.plugins import CheckResult


@cache
def missing_compiler(device: str) -> str | None:
    """The reason why Inductor cannot compile for devices of this type; None if it can."""
    if device == "cpu":
        return _without_cpp()
    if device == "cuda":
        return _without_triton()
    return f"regions on {device!r} are not compiled"


def check() -> CheckResult:
    """A check for ``thunder doctor``."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    problems = [f"{device}: {reason}" for device in devices if (reason := missing_compiler(device)) is not None]
    if problems:
        return CheckResult(
            False, "; ".join(problems), "install the missing compiler; until then its regions are not fused"
        )
    return CheckResult(True, f"Inductor can compile for {' and '.join(devices)}")


def _without_cpp() -> str | None:
    from thunder_plugin_inductor.pytorch_internals import InvalidCxxCompiler, get_cpp_compiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        return "there is no C++ compiler; install g++ or clang++, or set CXX to one"
    return None


def _without_triton() -> str | None:
    from thunder_plugin_inductor.pytorch_internals import has_triton

    return None if has_triton() else "there is no Triton that works with this GPU; install triton"
