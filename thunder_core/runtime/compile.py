"""Compile one program for the arguments of one call."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_core.acquire.acquire import Acquired, acquire
from thunder_core.guards.prologue import CallShape, build_prologue
from thunder_core.guards.source import ConstantSource, Source
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.claim import Claim
from thunder_core.passes.common_subexpression import CommonSubexpression
from thunder_core.passes.constant_folding import ConstantFolding
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.delete_last_use import DeleteLastUse
from thunder_core.passes.functionalize import Functionalize, Functionalized
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
    program = _transform(manager, acquired)
    stages += [StageReport(record.name, record.seconds, len(record.traces[0].symbols)) for record in manager.records]

    start = time.perf_counter()
    checked = options.cache != "same input"  # there the user promises that only the data of tensors changes
    guards = acquired.observer.guards() if checked else ()
    names = [proxy.name for proxy in program.final.inputs]
    objects = program.objects if checked else (None,) * len(names)
    prologue = build_prologue(
        guards,
        list(zip(names, program.sources, objects, strict=True)),
        state=acquired.observer.global_state,
        shape=CallShape.of(args, kwargs),
        non_overlapping=_must_not_overlap(acquired.trace) if checked else (),
        exact_stride=acquired.saw_strides,
    )
    acquired.observer.close()
    stages.append(StageReport("prologue", time.perf_counter() - start, None))

    start = time.perf_counter()
    epilogue = program.functional.epilogue
    computation = compile_trace(program.final)
    after = compile_trace(epilogue) if epilogue is not None else None
    run = build_run(computation, after, program.functional, acquired.recipe)
    stages.append(StageReport("code generation", time.perf_counter() - start, None))
    cached = options.cache != "no caching" and not acquired.random_states
    report = EntryReport(
        reason,
        cached,
        tuple(stages),
        tuple(guard.describe() for guard in prologue.guards),
        len(names),
        program.executors,
        acquired.recipe.writes,
    )
    constants = {
        proxy.name: source.value
        for proxy, source in zip(acquired.trace.inputs, acquired.sources, strict=True)
        if isinstance(source, ConstantSource)
    }
    return Entry(prologue, run, program.traces, epilogue, report, constants, acquired.random_states)


@dataclass(frozen=True)
class _Program:
    """What the passes made of a program.

    Attributes:
        traces: at each stage; acquired first.
        final: as executed.
        functional: where results come from.
        sources, objects: of the inputs of ``final``: where they are found, and what they were this time.
        executors: number of lines by executor.
    """

    traces: tuple[Trace, ...]
    final: Trace
    functional: Functionalized
    sources: tuple[Source, ...]
    objects: tuple[Any, ...]
    executors: dict[str, int]


def _transform(manager: PassManager, acquired: Acquired) -> _Program:
    functional = manager.run(Functionalize(), acquired.trace)
    computation = manager.run(DeadCode(), functional.computation)
    computation = manager.run(CommonSubexpression(functional.donated), computation)
    folded = manager.run(ConstantFolding(keep=functional.donated), computation)
    functional = manager.run(Reinplace(functional), folded.trace)
    claimed = manager.run(Claim(), functional.computation)
    final = manager.run(DeleteLastUse(), claimed.trace)
    counts = Counter(answers[-1].executor for answers in claimed.decisions)
    traces = (acquired.trace, *(record.traces[0] for record in manager.records))
    sources = (*acquired.sources, *(ConstantSource(value, "folded constant") for value in folded.constants))
    objects = (*acquired.inputs, *folded.constants)
    return _Program(traces, final, functional, sources, objects, dict(counts))


def _must_not_overlap(trace: Trace) -> list[tuple[str, str]]:
    """Pairs of inputs of which one is written, and that did not share memory when the program was recorded."""
    inputs = [proxy for proxy in trace.inputs if isinstance(proxy, TensorProxy)]
    written = {
        proxy.storage
        for line in trace.symbols
        if line.effects.mutates
        for proxy in line.inputs()
        if isinstance(proxy, TensorProxy) and proxy.name in line.effects.mutates
    }
    return [
        (one.name, other.name)
        for one in inputs
        if one.storage in written
        for other in inputs
        if other.storage != one.storage and (other.storage not in written or one.name < other.name)
    ]
