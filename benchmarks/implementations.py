"""The implementations that are compared, by what ``--impl`` calls them.

``eager``; ``compile`` is torch.compile, also in its modes; ``thunder`` is `thunder.jit` as it comes, ``thunder[a,b+c]``
with the executors a and b and the transform c, ``thunder[]`` with the reference executor alone, ``thunder:file.yaml``
with a configuration. What belongs to a package that may be missing says so when it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MODES = {
    "compile": "default",
    "compile-reduce-overhead": "reduce-overhead",
    "compile-max-autotune": "max-autotune",
}
"""Modes of torch.compile, by name of the implementation."""
FLOAT8_RECIPES = {"torchao-float8": "tensorwise", "torchao-float8-rowwise": "rowwise"}
"""How torchao scales numbers to float8, by name of the implementation."""
COMPARED = ("eager", "compile", "thunder")
GROUPS = {
    "lists": (
        "eager",
        "compile",
        "torchao-float8",
        "thunder[inductor]",
        "thunder[triton,inductor]",
        "thunder[cudnn,triton,inductor]",
        "thunder[nvfuser]",
        "thunder[cudnn,triton,nvfuser]",
        "thunder[te,cudnn,triton,inductor]",
        "thunder[sdpa,inductor+cudagraphs]",
        "thunder[te,sdpa,inductor+cudagraphs]",
    )
}
"""Names for several implementations: ``lists`` are lists of executors for a GPU, and what they are compared with."""
FORMS = (
    *MODES,
    "thunder[EXECUTORS+TRANSFORMS]",
    "thunder:CONFIG",
    *FLOAT8_RECIPES,
    "lightning-thunder",
    *(f"{name} (several)" for name in GROUPS),
)
FLOAT8_EXECUTORS = frozenset({"te"})
"""Executors whose matrix products take float8, so that losses differ from eager's by more than rounding."""
_THUNDER = re.compile(r"thunder(?:\[(?P<executors>[^+\]]*)(?:\+(?P<transforms>[^\]]*))?\]|:(?P<config>.+))?")


class UnknownImplementation(ValueError):
    """There is no such implementation, or what it needs is not installed; the message says which."""


def check(name: str) -> str:
    """``name``, if it is one; whether it can run here is for `benchmarks.availability`.

    Raises:
        UnknownImplementation: it is not one, or its configuration file does not exist.
    """
    from thunder_core.plugins.nearest import suggestion

    if found := _THUNDER.fullmatch(name):
        if found["config"] and found["config"].endswith((".yaml", ".yml")) and not Path(found["config"]).exists():
            raise UnknownImplementation(f"{name}: no file {found['config']}")
    elif name not in (*MODES, *FLOAT8_RECIPES, "lightning-thunder", "eager"):
        known = ["eager", "thunder", *FORMS]
        raise UnknownImplementation(
            f"no implementation {name!r}{suggestion(name, known)}; there are {', '.join(known)}"
        )
    return name


def checked(names: Iterable[str]) -> list[str]:
    """The implementations of these names, groups among them written out, each once. Errors as `check`."""
    every = [member for name in names for member in GROUPS.get(name, (name,))]
    return [check(name) for name in dict.fromkeys(every)]


def executors_of(name: str) -> list[str]:
    """The executors that an implementation, or its configuration, names."""
    found = _THUNDER.fullmatch(name)
    chosen = _chosen(found) if found else {}
    if "config" not in chosen:
        return chosen.get("executors", [])
    from thunder_core.config.document import documents_of
    from thunder_core.config.resolved import merge

    config, _ = merge(documents_of(chosen["config"]))
    return [entry.name for entry in config.executors or ()]


def asked_of_thunder(name: str) -> dict[str, Any] | None:
    """What ``thunder.jit`` is given; None for what is not Thunder."""
    found = _THUNDER.fullmatch(name)
    return _chosen(found) if found else None


def in_float8(name: str) -> bool:
    """Whether matrix products take float8."""
    return name in FLOAT8_RECIPES or not FLOAT8_EXECUTORS.isdisjoint(executors_of(name))


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
    if (asked := asked_of_thunder(name)) is not None:
        import thunder

        limits = {"recompile_warning": max(entries, 8), "recompile_limit": max(entries, 64)}
        return thunder.jit(program, **asked, **limits, **options)
    if name == "lightning-thunder":
        from benchmarks.lightning_thunder import lightning_thunder

        return lightning_thunder().jit(program)
    if name in FLOAT8_RECIPES:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        recipe = Float8LinearConfig.from_recipe_name(FLOAT8_RECIPES[name])
        convert_to_float8_training(program, config=recipe, module_filter_fn=_float8_fits)
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


def _float8_fits(module: Any, name: str) -> bool:
    """``_scaled_mm`` takes sizes that are multiples of 16; the head stays in high precision, as torchao advises."""
    return "lm_head" not in name and module.in_features % 16 == 0 and module.out_features % 16 == 0
