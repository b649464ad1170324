"""The report of the differentiation of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from thunder.report.amounts import bytes_text, counted
from thunder.report.memory_report import MemoryReport
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.runtime.transform import ExecutableProgram


@dataclass(frozen=True)
class DerivativeReport:
    """The ops with one symbol and one source of the derivative.

    Attributes:
        symbol: the name of the symbol.
        source: the source of the derivative: "a hand-written rule", "PyTorch's autograd", "hooks", the name of an
            executor, "recorded with it" for an op of tensor subclasses, or "eager at run time" if autograd records the
            op itself.
        reason: why earlier sources failed; empty if they have no derivative of the symbol.
        lines: the number of ops.
    """

    symbol: str
    source: str
    reason: str
    lines: int


@dataclass(frozen=True)
class TrainingReport:
    """Forward and backward of one program.

    Attributes:
        derivatives: the derivatives of the ops through which gradients flow.
        forward_lines, backward_lines: the numbers of ops of the two programs.
        saved_values, saved_bytes: the number and bytes of values that forward computes for backward alone.
        saved_results: the number of saved values that are results of the program.
        saved_inputs: the number of inputs that are saved for backward, which takes no memory.
        recomputed: the number of values that forward computes and backward recomputes.
        recompute: the policy of recomputation.
        memory: the predicted memory; None without a budget.
    """

    derivatives: tuple[DerivativeReport, ...]
    forward_lines: int
    backward_lines: int
    saved_values: int
    saved_bytes: int
    saved_results: int
    saved_inputs: int
    recomputed: int
    recompute: str | dict[str, float]
    memory: MemoryReport | None = None

    @classmethod
    def of(cls, program: ExecutableProgram) -> TrainingReport | None:
        """The report; None without gradients."""
        if program.differentiated is None:
            return None
        joint, partitioned = program.differentiated.joint, program.differentiated.partitioned
        inputs = {proxy.name for proxy in joint.primals}
        storages = {_storage(joint.outputs[position]) for position in joint.returned} - {None}
        computed = [proxy for proxy in partitioned.saved if proxy.name not in inputs]
        results = sum(_storage(proxy) in storages for proxy in computed)
        return cls(
            tuple([DerivativeReport(o.symbol, o.source, o.reason, count) for o, count in joint.origins.items()]),
            len(partitioned.forward.symbols),
            len(partitioned.backward.symbols),
            len(computed) - results,
            partitioned.bytes_saved,
            results,
            len(partitioned.saved) - len(computed),
            len(partitioned.recomputed),
            program.differentiated.late.compilation.policy,
            MemoryReport.of(program.differentiated),
        )

    @property
    def sources(self) -> dict[str, int]:
        """The number of ops by source of the derivative, the most frequent first."""
        counts: Counter[str] = Counter()
        for derivative in self.derivatives:
            counts[derivative.source] += derivative.lines
        return dict(counts.most_common())

    def lines(self) -> Sequence[str]:
        """The report as text."""
        counts = ", ".join(f"{count} by {source}" for source, count in self.sources.items())
        remarks = [
            f"  {item.lines} x {item.symbol} by {item.source}, since {item.reason}"
            for item in self.derivatives
            if item.reason
        ]
        saved = f"{counted(self.saved_values, 'value')} ({bytes_text(self.saved_bytes)}), "
        saved += f"{counted(self.saved_results, 'result')} and {counted(self.saved_inputs, 'input')}"
        forward, backward = counted(self.forward_lines, "operation"), counted(self.backward_lines, "operation")
        return (
            f"operations differentiated: {counts}",
            *remarks,
            f"forward ({forward}) saves {saved} for backward ({backward})",
            f"values recomputed in backward: {self.recomputed} (recompute={self.recompute!r})",
            *([] if self.memory is None else self.memory.lines()),
        )


def _storage(proxy: Proxy) -> int | None:
    return proxy.storage if isinstance(proxy, TensorProxy) else None
