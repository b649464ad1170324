"""Whether an implementation can run here, told without importing what it needs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from collections.abc import Iterable

from benchmarks.implementations import FLOAT8_RECIPES, MODES, UnknownImplementation, asked_of_thunder

COMPILERS = ("c++", "g++", "clang++", "cl")


def not_available(name: str, device: str = "cpu") -> str:
    """Why an implementation cannot run on a device; empty if it can."""
    if name in MODES or name in FLOAT8_RECIPES:
        if device == "cpu" and not any(map(shutil.which, COMPILERS)):
            return "no C++ compiler on this machine, and torch.compile's CPU back end needs one"
        return _missing("torchao") if name in FLOAT8_RECIPES else ""
    if name == "lightning-thunder":
        return _missing(name)
    asked = asked_of_thunder(name)
    return _problem(asked) if asked else ""


def unavailable(names: Iterable[str], device: str = "cpu") -> dict[str, str]:
    """Those of the implementations that cannot run here, with the reason."""
    return {name: reason for name in names if (reason := not_available(name, device))}


def required(names: list[str], device: str) -> list[str]:
    """``names``. Raises UnknownImplementation if one of them cannot run here."""
    for name, reason in unavailable(names, device).items():
        raise UnknownImplementation(f"{name}: {reason}")
    return names


def _missing(package: str) -> str:
    found = any(importlib.metadata.distributions(name=package)) or (
        # The package of this name is ours unless its distribution is installed.
        package != "lightning-thunder" and importlib.util.find_spec(package) is not None
    )
    return "" if found else f"it needs the package {package}, which is not installed"


def _problem(asked: dict[str, object]) -> str:
    """What is wrong with a configuration: a plugin that is not installed, or whose library is missing."""
    from thunder_core.config import resolve_config
    from thunder_core.errors import ThunderError

    try:
        resolve_config(**asked)
    except ThunderError as error:
        return error.problem.partition("\n")[0]
    return ""
