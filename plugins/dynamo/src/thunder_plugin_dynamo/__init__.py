"""Dynamo as a front end: ``torch.compile(model, backend="thunder")``. Names here are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunder_plugin_dynamo.backend import thunder
    from thunder_plugin_dynamo.graph_reports import DynamoReport, GraphBreak, GraphReport, report

_MODULES = {
    "DynamoReport": "graph_reports",
    "GraphBreak": "graph_reports",
    "GraphReport": "graph_reports",
    "report": "graph_reports",
    "thunder": "backend",
}

__all__ = ["DynamoReport", "GraphBreak", "GraphReport", "report", "thunder"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
