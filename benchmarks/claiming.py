"""Time of the assignment of executors to the operations of Llama-2-7B.

There are six executors of single operators, one that claims core-ATen operations, and one that fuses.
"""

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
    "parts": "the same, and one for core-ATen operations: all operations are lowered",
    "fusion": "the same, and one that fuses all elementwise operations",
}


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    rows = []
    for kind, what in KINDS.items():
        result = in_fresh_process(seconds, threads=threads, kind=kind)
        label = f"{what}; {result['operations']} operations"
        values = {"thunder": result["first"]}
        goal = "" if kind == "parts" else "<= 0.2 s"  # PyTorch lowers each distinct call once, which takes longer
        rows.append(Row(GROUP, label, "s", values, {}, goal, result["first"] <= 0.2 if goal else None, result))
    return rows


def seconds(kind: str) -> dict[str, Any]:
    """Seconds of the first run of `AssignExecutors`, and the median of five later runs.

    Garbage collection is disabled: a collection visits the whole program, and may or may not happen during a run.
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
    times = []
    gc.collect()
    gc.disable()
    for _ in range(6):
        start = time.perf_counter()
        AssignExecutors().run(trace, PassContext(executors=executors))
        times.append(time.perf_counter() - start)
    return {"operations": len(trace.symbols), "first": times[0], "later": statistics.median(times[1:])}


def _executors(kind: str) -> list[Executor]:
    import torch

    from thunder_core.executors import Claim, OperatorExecutor
    from thunder_core.ir.symbol import Tag
    from thunder_core.symbols.registry import registry

    functions = [
        name for (name, style), row in registry.catalogue.rows.items() if style.name == "FUNCTION" and row.tags
    ]
    names = [name for name in functions if not name.startswith("torch.ops.")]  # without core-ATen operations

    def check(*args: Any, **kwargs: Any) -> str:
        return f"{type(args[0])} is not implemented"

    common = ["torch.add", "torch.mul", "torch.nn.functional.linear", "torch.cat", "torch.nn.functional.silu"]
    executors: list[Executor] = [
        OperatorExecutor(f"executor_{number}", tuple([Claim(n, len, check) for n in [*common, *names[number::6][:55]]]))
        for number in range(6)
    ]
    if kind == "parts":
        executors.append(OperatorExecutor("parts", (Claim(torch.ops.aten.rsqrt.default, len, check),)))
    if kind == "fusion":
        executors.append(_fusion(Tag.ELEMENTWISE))
    return executors


def _fusion(tag: Any) -> Executor:
    from thunder_fusion import FusionExecutor

    class Fusion(FusionExecutor):
        name = "fusion"
        takes_parts = False

        def can_fuse(self, bound: Any) -> bool | str:
            return tag in bound.symbol.tags or "not elementwise"

        def fuse(self, region: Any) -> Any:
            return len

    return Fusion()
