"""Compile one program for the arguments of one call."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from thunder_core.acquire.acquire import Acquired, acquire
from thunder_core.executors.executor import Claimed
from thunder_core.guards.prologue import build_prologue
from thunder_core.guards.source import ConstantSource
from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_core.passes.claim import Claim
from thunder_core.passes.common_subexpression import CommonSubexpression
from thunder_core.passes.constant_folding import ConstantFolding
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.delete_last_use import DeleteLastUse
from thunder_core.passes.functionalize import Functionalize
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.reinplace import Reinplace
from thunder_core.report.compile_report import EntryReport, StageReport
from thunder_core.runtime.entry import Entry, build_run
from thunder_core.runtime.options import Options


def compile_program(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options, reason: str
) -> Entry:
    """Acquire ``function`` with these arguments, transform it, and make it callable.

    ``reason`` says why, for the report.
    """
    start = time.perf_counter()
    acquired = acquire(function, args, kwargs)
    stages = [StageReport("acquisition", time.perf_counter() - start, len(acquired.trace.symbols))]
    manager = PassManager()
    traces, epilogue, sources, executors = _transform(manager, acquired)
    stages += [StageReport(record.name, record.seconds, len(record.traces[0].symbols)) for record in manager.records]

    start = time.perf_counter()
    guards = acquired.observer.guards() if options.cache == "constant values" else ()
    names = [proxy.name for proxy in traces[-1].inputs]
    prologue = build_prologue(guards, list(zip(names, sources, strict=True)))
    stages.append(StageReport("prologue", time.perf_counter() - start, None))

    start = time.perf_counter()
    computation = compile_trace(traces[-1])
    after = compile_trace(epilogue) if epilogue is not None else None
    run = build_run(computation, after, acquired.recipe)
    stages.append(StageReport("code generation", time.perf_counter() - start, None))
    report = EntryReport(
        reason,
        options.cache != "no caching",
        tuple(stages),
        tuple(guard.describe() for guard in guards),
        len(names),
        executors,
        acquired.recipe.writes,
    )
    return Entry(prologue, run, traces, epilogue, report)


def _transform(
    manager: PassManager, acquired: Acquired
) -> tuple[tuple[Trace, ...], Trace | None, tuple[Any, ...], dict[str, int]]:
    """All passes: the traces (acquired first, executable last), the epilogue, the inputs' sources, lines by executor."""
    trace = acquired.trace
    functional = manager.run(Functionalize(), trace)
    computation = manager.run_all((DeadCode(), CommonSubexpression()), functional.computation)
    folded = manager.run(ConstantFolding(), computation)
    reinplaced = manager.run(Reinplace(functional.epilogue), folded.trace)
    claimed = manager.run(Claim(), reinplaced.computation)
    counts = Counter(answers[-1].executor for answers in claimed.decisions if isinstance(answers[-1], Claimed))
    final = manager.run(DeleteLastUse(), claimed.trace)
    made = [acquired.trace] + [record.traces[0] for record in manager.records]
    sources = acquired.sources + tuple(ConstantSource(value) for value in folded.constants)
    return tuple(made[:-1]) + (final,), reinplaced.epilogue, sources, dict(counts)


