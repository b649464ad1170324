"""Saving the regions of a compiled program as scripts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from thunder_core.ir.trace import Trace
from thunder_core.passes.admission import region_call
from thunder_plugin_nvfuser.compiled_region import CompiledRegion
from thunder_plugin_nvfuser.script import save


def save_reproducers(traces: Iterable[Trace], folder: str | Path) -> list[Path]:
    """Write a script for each distinct region of nvFuser in executable traces.

    ``save_reproducers([thunder.last_traces(f)[-1]], "regions")``; those of backward are in `last_backward_traces`.

    Returns:
        The files, in the order in which the regions run.
    """
    regions = [region_call(op) for trace in traces for op in trace.symbols]
    paths = [save(region.written, Path(folder)) for region in regions if isinstance(region, CompiledRegion)]
    return list(dict.fromkeys(paths))
