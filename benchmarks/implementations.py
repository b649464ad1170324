"""The implementations that benchmarks compare, by their names in ``--impl``.

``eager``; ``compile`` and its variants for the modes of torch.compile; ``thunder`` for `thunder.jit` with default
options, ``thunder[a,b+c]`` with the executors a and b and the transform c, ``thunder[]`` with the reference executor
only, ``thunder:file.yaml`` with a configuration. `benchmarks.availability` checks whether an implementation can run.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunder.report.compile_report import CompileReport

MODES = {
    "compile": "default",
    "compile-reduce-overhead": "reduce-overhead",
    "compile-max-autotune": "max-autotune",
}
"""The mode of torch.compile, by implementation."""
WITH_GRAPHS = ("compile-reduce-overhead", "compile-max-autotune")
"""Those that run CUDA graphs of torch.compile, whose tensors have constant addresses."""
FLOAT8_RECIPES = {"torchao-float8": "tensorwise", "torchao-float8-rowwise": "rowwise"}
"""torchao's recipe for scaling to float8, by implementation."""
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
    ),
    "recipes": (
        *COMPARED,
        "thunder:exact",
        "thunder:training",
        "thunder:low-memory",
        "thunder:inference",
        "thunder:decoding",
    ),
}
"""Names for several implementations. ``lists`` has lists of executors for a GPU, and what they are compared with;
``recipes`` has the presets for a purpose."""
FORMS = (
    *MODES,
    "thunder[EXECUTORS+TRANSFORMS]",
    "thunder:CONFIG",
    *FLOAT8_RECIPES,
    "lightning-thunder",
    *(f"{name} (several)" for name in GROUPS),
)
FLOAT8_EXECUTORS = frozenset({"te"})
"""Executors with float8 matmuls, whose losses differ from eager's by more than bfloat16 rounding."""
_THUNDER = re.compile(r"thunder(?:\[(?P<executors>[^+\]]*)(?:\+(?P<transforms>[^\]]*))?\]|:(?P<config>.+))?")


Stages = list[tuple[str, float, int | None]]
"""Name, seconds and number of operations of each stage of a compilation."""
LIGHTNING_THUNDER_ADVICE = (
    "install it into a separate folder (pip install --target FOLDER lightning-thunder) and add the folder to PYTHONPATH"
)


class UnknownImplementation(ValueError):
    """The implementation does not exist, or a package that it needs is not installed."""


def check(name: str) -> str:
    """Return ``name`` if it is an implementation.

    Raises:
        UnknownImplementation: there is no such implementation, or its configuration file does not exist.
    """
    from thunder_core.errors import suggestion

    if match := _THUNDER.fullmatch(name):
        if match["config"] and match["config"].endswith((".yaml", ".yml")) and not Path(match["config"]).exists():
            raise UnknownImplementation(f"{name}: no file {match['config']}")
    elif name not in (*MODES, *FLOAT8_RECIPES, "lightning-thunder", "eager"):
        known = ["eager", "thunder", *FORMS]
        raise UnknownImplementation(
            f"no implementation {name!r}{suggestion(name, known)}; there are {', '.join(known)}"
        )
    return name


def checked(names: Iterable[str]) -> list[str]:
    """The implementations without duplicates, with the groups among them expanded. Raises like `check`."""
    every = [member for name in names for member in GROUPS.get(name, (name,))]
    return [check(name) for name in dict.fromkeys(every)]


def executors_of(name: str) -> list[str]:
    """The executors in the name of an implementation, or in its configuration."""
    match = _THUNDER.fullmatch(name)
    chosen = _chosen(match) if match else {}
    if "config" not in chosen:
        return chosen.get("executors", [])
    from thunder.config.document import documents_of
    from thunder.config.entry import EXTENDED
    from thunder.config.merge import merge

    config, _ = merge(documents_of(chosen["config"]))
    return [entry.name for entry in config.executors or () if entry != EXTENDED]


def jit_options(name: str) -> dict[str, Any] | None:
    """The options of ``thunder.jit`` for an implementation; None if it is not Thunder."""
    match = _THUNDER.fullmatch(name)
    return _chosen(match) if match else None


def in_float8(name: str) -> bool:
    """Whether the implementation computes matmuls in float8."""
    return name in FLOAT8_RECIPES or not FLOAT8_EXECUTORS.isdisjoint(executors_of(name))


def compiles(name: str) -> bool:
    """Whether the implementation compiles, so that a cache on disk affects it."""
    return name != "eager"


def compile_with(
    name: str,
    program: Callable[..., Any],
    *,
    entries: int = 8,
    backend: str = "inductor",
    dynamic: bool | None = False,
    **options: Any,
) -> Callable[..., Any]:
    """``program`` compiled by an implementation, or ``program`` itself for eager.

    Args:
        name: the implementation.
        program: a function or a module.
        entries: number of specializations that may be compiled. Shapes and values are constants in each.
        backend: of torch.compile.
        dynamic: of torch.compile: whether sizes are symbolic; None: those that have changed.
        options: further options of ``thunder.jit``.
    """
    if name == "eager":
        return program
    if (selected := jit_options(name)) is not None:
        import thunder

        limits = {"recompile_warning": max(entries, 8), "recompile_limit": max(entries, 64)}
        return thunder.jit(program, **selected, **limits, **options)
    if name == "lightning-thunder":
        return _lightning_thunder().jit(program)
    if name in FLOAT8_RECIPES:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        recipe = Float8LinearConfig.from_recipe_name(FLOAT8_RECIPES[name])
        convert_to_float8_training(program, config=recipe, module_filter_fn=_supports_float8)
    import torch
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(entries, 8)
    torch._dynamo.config.allow_unspec_int_on_nn_module = False
    mode = MODES.get(name, "default") if backend == "inductor" else None
    return torch.compile(program, dynamic=dynamic, backend=backend, mode=mode)


def _chosen(match: re.Match[str]) -> dict[str, Any]:
    lists = {name: match[name] for name in ("executors", "transforms")}
    # thunder[+cudagraphs]: only transforms, with the default executors.
    if lists["transforms"] is not None and not lists["executors"]:
        del lists["executors"]
    chosen = {name: _names(text) for name, text in lists.items() if text is not None}
    return chosen | ({"config": match["config"]} if match["config"] else {})


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _supports_float8(module: Any, name: str) -> bool:
    """``_scaled_mm`` requires sizes that are multiples of 16. torchao recommends high precision for the head."""
    return "lm_head" not in name and module.in_features % 16 == 0 and module.out_features % 16 == 0


def stages_of(implementation: str, compiled: Any) -> Stages | None:
    """The stages of the last compilation; None if the implementation is not Thunder."""
    if jit_options(implementation) is None:
        return None
    import thunder

    return reported_stages(thunder.explain(compiled))


def compilations_of(implementation: str, compiled: Any) -> int | None:
    """The number of programs that Thunder or torch.compile has compiled in this process; None for others."""
    if jit_options(implementation) is not None:
        import thunder

        return thunder.cache_misses(compiled)
    if implementation not in MODES:
        return None
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def notes_of(implementation: str, compiled: Any) -> list[str]:
    """The notes in Thunder's report on the last program, such as why ``cudagraphs`` captures it or not."""
    if jit_options(implementation) is None:
        return []
    import thunder

    return list(thunder.explain(compiled).entries[-1].notes)


def reported_stages(report: CompileReport) -> Stages:
    """The stages of the last compilation in a report."""
    return [(stage.name, stage.seconds, stage.lines) for stage in report.entries[-1].stages]


def _lightning_thunder() -> Any:
    """Import the module ``thunder`` of lightning-thunder. This project's cannot be imported in the process afterwards.

    Raises:
        RuntimeError: this project's module was imported before, or overwrote the files of lightning-thunder.
    """
    folder = Path(str(importlib.metadata.distribution("lightning-thunder").locate_file("")))
    sys.path.insert(0, str(folder))
    module = importlib.import_module("thunder")
    if importlib.util.find_spec("thunder._api") is not None or not Path(module.__file__ or "").is_relative_to(folder):
        raise RuntimeError(
            f"the module thunder in {folder} is not that of lightning-thunder; {LIGHTNING_THUNDER_ADVICE}"
        )
    return module
