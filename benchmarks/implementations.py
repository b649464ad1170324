"""The implementations that are compared, each as a way to compile a module or function."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

COMPILERS = ("c++", "g++", "clang++", "cl")


def unavailable() -> dict[str, str]:
    """Implementations that cannot run here, with the reason."""
    if any(map(shutil.which, COMPILERS)):
        return {}
    return {"torch.compile": "no C++ compiler on this machine, and its CPU back end needs one"}


def compile_with(
    name: str, program: Callable[..., Any], *, entries: int = 8, backend: str = "inductor", **options: Any
) -> Callable[..., Any]:
    """``program`` compiled by implementation ``name``, which may keep up to ``entries`` specializations.

    ``program`` itself for eager. Specializations are static in all: one for each shape and value. ``backend`` is
    torch.compile's, ``options`` are those of ``thunder.jit``.
    """
    if name == "eager":
        return program
    if name == "thunder":
        import thunder

        return thunder.jit(program, recompile_warning=max(entries, 8), recompile_limit=max(entries, 64), **options)
    import torch
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(entries, 8)
    torch._dynamo.config.allow_unspec_int_on_nn_module = False
    return torch.compile(program, dynamic=False, fullgraph=True, backend=backend)
