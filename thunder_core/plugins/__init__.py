"""Plugins: the interface that plugin authors import. Nothing here imports PyTorch."""

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
