"""How long each stage of a compilation took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.implementations import asked_of_thunder

if TYPE_CHECKING:
    from thunder_core.report.compile_report import CompileReport

Stages = list[tuple[str, float, int | None]]
"""Name, seconds and lines."""


def stages_of(implementation: str, compiled: Any) -> Stages | None:
    """Those of the last compilation; None for what Thunder did not compile."""
    if asked_of_thunder(implementation) is None:
        return None
    import thunder

    return reported_stages(thunder.explain(compiled))


def reported_stages(report: CompileReport) -> Stages:
    """Those of the last compilation of a report."""
    return [(stage.name, stage.seconds, stage.lines) for stage in report.entries[-1].stages]
