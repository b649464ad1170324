"""What asking executors costs: six of them for each line of Llama-2-7B, one that takes parts, one that fuses."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks import programs
from benchmarks.process import in_fresh_process
from benchmarks.row import Row

if TYPE_CHECKING:
    from thunder_core.executors import Executor
    from thunder_core.ir.trace import Trace

GROUP = "claiming"
KINDS = {
    "operators": "six executors of operators, 60 claims each",
    "parts": "the same, and one that takes core-ATen parts: all lines are lowered",
    "fusion": "the same, and one that fuses all elementwise lines",
}


def measure(threads: int) -> list[Row]:
    """The rows of this benchmark."""
    rows = []
    for kind, what in KINDS.items():
        found = in_fresh_process(seconds, threads=threads, kind=kind)
        label = f"{what}; {found['lines']} lines"
        values = {"thunder": found["first"]}
        goal = "" if kind == "parts" else "<= 0.2 s"  # each different call is lowered once, by PyTorch
        rows.append(Row(GROUP, label, "s", values, {}, goal, found["first"] <= 0.2 if goal else None, found))
    return rows


def seconds(kind: str) -> dict[str, Any]:
    """Seconds that the pass takes the first time and, in the median of five, later; without garbage collection.

    A collection looks at the whole program, and whether one falls into the first run is a matter of chance.
    """
    import gc

    import torch

    import thunder
    from thunder_core.passes.assign_executors import AssignExecutors
    from thunder_core.passes.base import PassContext

    model, arguments = programs.llama_7b_on_meta()
    compiled = thunder.jit(model, executors=[])
    with torch.no_grad():
        compiled(*arguments)
    trace: Trace = next(t for t in reversed(thunder.last_traces(compiled)) if t.stage.value == "functional")
    executors = _executors(kind)
    found = []
    gc.collect()
    gc.disable()
    for _ in range(6):
        start = time.perf_counter()
        AssignExecutors().run(trace, PassContext(executors=executors))
        found.append(time.perf_counter() - start)
    return {"lines": len(trace.symbols), "first": found[0], "later": statistics.median(found[1:])}


def _executors(kind: str) -> list[Executor]:
    import torch

    from thunder_core.executors import Claim, OperatorExecutor
    from thunder_core.ir.symbol import Tag
    from thunder_core.symbols.registry import registry

    names = [name for (name, style), row in registry.catalogue.rows.items() if style.name == "FUNCTION" and row.tags]

    def check(*args: Any, **kwargs: Any) -> str:
        return f"{type(args[0])} is not implemented"

    common = ["torch.add", "torch.mul", "torch.nn.functional.linear", "torch.cat", "torch.nn.functional.silu"]
    found: list[Executor] = [
        OperatorExecutor(f"executor_{number}", tuple([Claim(n, len, check) for n in [*common, *names[number::6][:55]]]))
        for number in range(6)
    ]
    if kind == "parts":
        found.append(OperatorExecutor("parts", (Claim(torch.ops.aten.rsqrt.default, len, check),)))
    if kind == "fusion":
        found.append(_fusion(Tag.ELEMENTWISE))
    return found


def _fusion(tag: Any) -> Executor:
    from thunder_fusion import FusionExecutor

    class Fusion(FusionExecutor):
        name = "fusion"
        takes_parts = False

        def can_fuse(self, bound: Any) -> bool | str:
            return tag in bound.symbol.tags or "it is not elementwise"

        def fuse(self, region: Any) -> Any:
            return len

    return Fusion()
