"""The implementations that are compared, by what ``--impl`` calls them.

``eager``; ``compile`` is torch.compile, also in its modes; ``thunder`` is `thunder.jit` as it comes, ``thunder[a,b+c]``
with the executors a and b and the transform c, ``thunder[]`` with the reference executor alone, ``thunder:file.yaml``
with a configuration. What belongs to a package that may be missing says so when it is.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMPILERS = ("c++", "g++", "clang++", "cl")
MODES = {
    "compile": "default",
    "compile-reduce-overhead": "reduce-overhead",
    "compile-max-autotune": "max-autotune",
}
"""Modes of torch.compile, by name of the implementation."""
COMPARED = ("eager", "compile", "thunder")
FORMS = (*MODES, "thunder[EXECUTORS+TRANSFORMS]", "thunder:CONFIG", "torchao-float8", "lightning-thunder")
_THUNDER = re.compile(r"thunder(?:\[(?P<executors>[^+\]]*)(?:\+(?P<transforms>[^\]]*))?\]|:(?P<config>.+))?")


class UnknownImplementation(ValueError):
    """There is no such implementation, or what it needs is not installed; the message says which."""


def check(name: str, device: str) -> str:
    """``name``, if it can run on ``device``; nothing heavy is imported.

    Raises:
        UnknownImplementation: it is not one, or a package that it needs is missing.
    """
    from thunder_core.plugins.nearest import suggestion

    reason = None
    if found := _THUNDER.fullmatch(name):
        if found["config"] and found["config"].endswith((".yaml", ".yml")) and not Path(found["config"]).exists():
            reason = f"no file {found['config']}"
    elif name in MODES:
        reason = unavailable([name], device).get(name)
    elif name in ("torchao-float8", "lightning-thunder"):
        package = name.partition("-float8")[0]
        reason = None if _installed(package) else f"it needs the package {package}, which is not installed"
    elif name != "eager":
        known = ["eager", "thunder", *FORMS]
        raise UnknownImplementation(
            f"no implementation {name!r}{suggestion(name, known)}; there are {', '.join(known)}"
        )
    if reason:
        raise UnknownImplementation(f"{name}: {reason}")
    return name


def unavailable(names: list[str], device: str = "cpu") -> dict[str, str]:
    """Those of the implementations that cannot run here, with the reason."""
    if device != "cpu" or any(map(shutil.which, COMPILERS)):
        return {}
    reason = "no C++ compiler on this machine, and torch.compile's CPU back end needs one"
    return {name: reason for name in names if name in MODES}


def compiles(name: str) -> bool:
    """Whether there is something that a cache on disk could hold."""
    return name != "eager"


def compile_with(
    name: str, program: Callable[..., Any], *, entries: int = 8, backend: str = "inductor", **options: Any
) -> Callable[..., Any]:
    """``program`` compiled by implementation ``name``, which may keep up to ``entries`` specializations.

    ``program`` itself for eager. Specializations are static in all: one for each shape and value. ``backend`` is
    torch.compile's, ``options`` are further ones of ``thunder.jit``.
    """
    if name == "eager":
        return program
    if found := _THUNDER.fullmatch(name):
        import thunder

        limits = {"recompile_warning": max(entries, 8), "recompile_limit": max(entries, 64)}
        return thunder.jit(program, **_chosen(found), **limits, **options)
    if name == "lightning-thunder":
        from benchmarks.lightning_thunder import lightning_thunder

        return lightning_thunder().jit(program)
    if name == "torchao-float8":
        from torchao.float8 import convert_to_float8_training

        convert_to_float8_training(program, module_filter_fn=_float8_fits)
    import torch
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(entries, 8)
    torch._dynamo.config.allow_unspec_int_on_nn_module = False
    mode = MODES.get(name, "default") if backend == "inductor" else None
    return torch.compile(program, dynamic=False, backend=backend, mode=mode)


def _chosen(found: re.Match[str]) -> dict[str, Any]:
    lists = {name: found[name] for name in ("executors", "transforms")}
    # thunder[+cudagraphs]: transforms alone, the executors stay the default.
    if lists["transforms"] is not None and not lists["executors"]:
        del lists["executors"]
    chosen = {name: _names(text) for name, text in lists.items() if text is not None}
    return chosen | ({"config": found["config"]} if found["config"] else {})


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _installed(package: str) -> bool:
    if package == "lightning-thunder":
        return any(importlib.metadata.distributions(name=package))
    return importlib.util.find_spec(package) is not None


def _float8_fits(module: Any, name: str) -> bool:
    """``_scaled_mm`` takes sizes that are multiples of 16; the head stays in high precision, as torchao advises."""
    return "lm_head" not in name and module.in_features % 16 == 0 and module.out_features % 16 == 0
