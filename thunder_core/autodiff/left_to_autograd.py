"""Programs that PyTorch's autograd has to record while they run."""

from __future__ import annotations

from thunder_core.autodiff.tensor_hooks import has_hooks_on_returned_views
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace


def why_left_to_autograd(trace: Trace) -> str | None:
    """What autograd does for the program that its lines do not say; None if they say it all."""
    for bound in trace.symbols:
        if Tag.AUTOGRAD in bound.symbol.tags:
            place = f", at {bound.location.describe()}" if bound.location is not None else ""
            return f"{bound.symbol.name} asks or changes the autograd graph, or uses parameters of its own{place}"
    return "it sets hooks on views that it returns" if has_hooks_on_returned_views(trace) else None
