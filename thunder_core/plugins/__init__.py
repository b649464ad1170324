"""Plugins: what their authors import. Nothing here imports PyTorch."""

from thunder_core.plugins.hookspecs import API, hookimpl
from thunder_core.plugins.options import ExecutorOptions, TransformOptions
from thunder_core.plugins.specs import (
    Check,
    CheckResult,
    ExecutorSpec,
    FrontEndSpec,
    InterceptionsSpec,
    Preset,
    SymbolsSpec,
    TransformSpec,
    private_names_result,
)

__all__ = [
    "API",
    "Check",
    "CheckResult",
    "ExecutorOptions",
    "ExecutorSpec",
    "FrontEndSpec",
    "InterceptionsSpec",
    "Preset",
    "SymbolsSpec",
    "TransformOptions",
    "TransformSpec",
    "hookimpl",
    "private_names_result",
]
