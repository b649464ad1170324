"""Dynamo as a front end: ``torch.compile(model, backend="thunder")``. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_dynamo.backend import thunder
    from thunder_plugin_dynamo.graph_reports import DynamoReport, GraphBreak, GraphReport, report

__all__ = ["DynamoReport", "GraphBreak", "GraphReport", "report", "thunder"]

__getattr__ = lazy_imports(
    __name__,
    {
        "DynamoReport": "graph_reports",
        "GraphBreak": "graph_reports",
        "GraphReport": "graph_reports",
        "report": "graph_reports",
        "thunder": "backend",
    },
)
