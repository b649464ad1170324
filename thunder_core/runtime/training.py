"""What the report tells of the forward and backward of one program."""

from __future__ import annotations

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.report.training_report import DerivativeReport, TrainingReport


def training_report(joint: Joint, partitioned: Partitioned, recompute: str | dict[str, float]) -> TrainingReport:
    """The report; ``recompute`` is the policy that ``partitioned`` follows."""
    names = {proxy.name for proxy in joint.primals}
    memories = {_memory(joint.outputs[position]) for position in joint.returned} - {None}
    inputs = sum(proxy.name in names for proxy in partitioned.saved)
    results = sum(_memory(proxy) in memories for proxy in partitioned.saved if proxy.name not in names)
    return TrainingReport(
        tuple([DerivativeReport(o.symbol, o.source, o.reason, count) for o, count in joint.origins.items()]),
        len(partitioned.forward.symbols),
        len(partitioned.backward.symbols),
        len(partitioned.saved) - inputs - results,
        partitioned.bytes_saved,
        results,
        inputs,
        len(partitioned.recomputed),
        recompute,
    )


def _memory(proxy: Proxy) -> int | None:
    return proxy.storage if isinstance(proxy, TensorProxy) else None
