"""Dynamo as a front end: ``torch.compile(model, backend="thunder")``. Names are imported on first use.

Dynamo calls `backend` with each FX graph. `graph` converts it to a function, in which `higher_order` replaces
higher-order operators by the functions that users call, and `user_lines` maps generated lines to the user's. The
function is compiled with the front end ``dynamo`` (`front_end`). Dynamo has checked the guards of graphs with constant
sizes, so these are ``checked_by_caller`` (`thunder_core.contract.Recording`). Graphs with symbolic sizes or numbers
have all guards. `skipped_frames` keeps Dynamo from tracing Thunder's backward after a graph break.
"""

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
