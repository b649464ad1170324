"""What the report tells of the forward and backward of one program."""

from __future__ import annotations

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.report.training_report import DerivativeReport, TrainingReport


def training_report(joint: Joint, partitioned: Partitioned, recompute: str | dict[str, float]) -> TrainingReport:
    """The report; ``recompute`` is the policy that ``partitioned`` follows."""
    inputs = {proxy.name for proxy in joint.primals}
    saved = sum(proxy.name in inputs for proxy in partitioned.saved)
    return TrainingReport(
        tuple([DerivativeReport(o.symbol, o.source, o.reason, count) for o, count in joint.origins.items()]),
        len(partitioned.forward.symbols),
        len(partitioned.backward.symbols),
        len(partitioned.saved) - saved,
        partitioned.bytes_saved,
        saved,
        len(partitioned.recomputed),
        recompute,
    )
