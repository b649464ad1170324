"""Whether an implementation can run on this machine, without importing its packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from collections.abc import Iterable

from benchmarks.implementations import FLOAT8_RECIPES, MODES, UnknownImplementation, jit_options

COMPILERS = ("c++", "g++", "clang++", "cl")


def not_available(name: str, device: str = "cpu") -> str:
    """The reason why an implementation cannot run on a device; empty if it can."""
    if name in MODES or name in FLOAT8_RECIPES:
        if device == "cpu" and not any(map(shutil.which, COMPILERS)):
            return "no C++ compiler on this machine, and torch.compile's CPU back end needs one"
        return _missing("torchao") if name in FLOAT8_RECIPES else ""
    if name == "lightning-thunder":
        return _missing(name)
    selected = jit_options(name)
    return _problem(selected) if selected else ""


def unavailable(names: Iterable[str], device: str = "cpu") -> dict[str, str]:
    """The implementations that cannot run on this machine, with the reason."""
    return {name: reason for name in names if (reason := not_available(name, device))}


def required(names: list[str], device: str) -> list[str]:
    """Return ``names``, or raise UnknownImplementation if one of them cannot run on this machine."""
    for name, reason in unavailable(names, device).items():
        raise UnknownImplementation(f"{name}: {reason}")
    return names


def _missing(package: str) -> str:
    installed = any(importlib.metadata.distributions(name=package)) or importlib.util.find_spec(package) is not None
    return "" if installed else f"it needs the package {package}, which is not installed"


def _problem(options: dict[str, object]) -> str:
    """The first problem of a configuration, such as a plugin or a library that is not installed."""
    from thunder.config import resolve_config
    from thunder_core.errors import ThunderError

    try:
        resolve_config(**options)
    except ThunderError as error:
        return error.problem.partition("\n")[0]
    return ""
