"""Plugins: the interface that plugin authors import. Nothing here imports PyTorch.

`hookspecs` defines the hooks and is the manual for authors; hooks return specifications (`specs`), which name objects
by import path. The core offers its own executor, front end and presets through the same hooks (`builtin`).

1. `distributions` reads the metadata of installed distributions, without importing them.
2. `discovery` and `requirements` determine the state of each plugin from metadata, and the command that repairs it.
3. `host` records the states (`states`), and imports the plugins that a configuration names.
4. `registration` registers them with pluggy and validates what their hooks return.
5. `lookup` resolves the name of an executor, transform, front end or preset.
6. `tables` adds the symbols and derivative rules of a plugin when it is first used.

Thunder uses pluggy for hook markers, the check of hook signatures, and the registry. It reads entry points itself,
since pluggy's ``load_setuptools_entrypoints`` imports every plugin and stops at the first error. It calls each hook for
one plugin at a time, to attribute results and exceptions. The configuration alone defines the order; hook wrappers are
refused.
"""

from thunder_core.plugins.hookspecs import API, hookimpl
from thunder_core.plugins.options import ExecutorOptions, TransformOptions
from thunder_core.plugins.specs import (
    CheckResult,
    CheckSpec,
    CommandSpec,
    ExecutorSpec,
    FrontEndSpec,
    InterceptionsSpec,
    Preset,
    SymbolsSpec,
    TensorClassesSpec,
    TransformSpec,
    private_names_result,
)

__all__ = [
    "API",
    "CheckResult",
    "CheckSpec",
    "CommandSpec",
    "ExecutorOptions",
    "ExecutorSpec",
    "FrontEndSpec",
    "InterceptionsSpec",
    "Preset",
    "SymbolsSpec",
    "TensorClassesSpec",
    "TransformOptions",
    "TransformSpec",
    "hookimpl",
    "private_names_result",
]
