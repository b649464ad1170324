"""Compile one program for the arguments of one call."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from thunder_core import progress
from thunder_core.acquire.acquire import Acquired, acquire
from thunder_core.acquire.attempt import Guesses, why_constant
from thunder_core.acquire.input_sizes import VaryingSizes
from thunder_core.config.by_device import with_executors_for
from thunder_core.config.settings import Settings
from thunder_core.executors.states import States
from thunder_core.guards.prologue import CallShape, build_prologue
from thunder_core.guards.sizes import SizesGuard
from thunder_core.guards.source import ConstantSource
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.context import Context
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.ir.trace import Trace
from thunder_core.passes.pass_manager import PassManager
from thunder_core.pytorch_internals import top_saved_tensors_default_hooks
from thunder_core.report.compile_report import EntryReport, PresetChoice, RegionReport, StageReport
from thunder_core.report.sizes_report import SizesReport
from thunder_core.runtime.agreement import agree
from thunder_core.runtime.bridge import join
from thunder_core.runtime.collectives import groups_of
from thunder_core.runtime.decisions import executed_lines, region_contents
from thunder_core.runtime.entry import Entry, build_run, executed_programs
from thunder_core.runtime.outcomes import Undo, guesses_of
from thunder_core.runtime.transform import Program, transform
from thunder_core.tracing.sizes import Sizes, compiling_with


def without_autocast(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    """``function`` with autocast off while it runs; the function itself where autocast is off anyway.

    Unlike `torch.autocast` it is no region: PyTorch's cache of converted weights, which belongs to the caller, stays.

    Args:
        function: takes positional arguments.
        context: the modes of the caller, the same in each call.
    """
    kinds = tuple(kind for kind, _ in context.autocast)
    if not kinds:
        return function

    def run(*args: Any) -> Any:
        try:
            for kind in kinds:
                torch.set_autocast_enabled(kind, False)
            return function(*args)
        finally:
            for kind in kinds:
                torch.set_autocast_enabled(kind, True)

    return run


def with_executors(settings: Settings, trace: Trace) -> tuple[Settings, PresetChoice | None]:
    """The settings for this program, and what was chosen; nothing is where the configuration names executors."""
    if settings.config.executors is not None:
        return settings, None
    device = device_of(trace)
    chosen, preset = with_executors_for(device, settings)
    if not preset:
        return settings, None
    names = tuple([executor.name for executor in chosen.executors])
    return chosen, PresetChoice(preset, device, names, chosen.left_out[len(settings.left_out) :])


def device_of(trace: Trace) -> str:
    """The type of device that a program runs on: that of its first tensor on an accelerator, else ``cpu``."""
    return next((device for device in _devices(trace) if device not in ("cpu", "meta")), "cpu")


def _devices(trace: Trace) -> Iterator[str]:
    for proxy in trace.inputs:
        if isinstance(proxy, TensorProxy):
            yield proxy.device.type
    for line in trace.symbols:
        for result in line.outputs():
            if isinstance(result, TensorProxy):
                yield result.device.type


_BY_PYTHON: Final = 1000
"""More objects than Python freezes when it starts (375 in 3.12, none in 3.11 and 3.13), and far fewer than users do."""
_YOUNG: Final = 50_000
"""New objects before the collector looks at them, instead of Python's 700 to 2,000."""


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the garbage collector off the objects that exist already, and have it look at new ones more rarely.

    Compiling makes many objects that live on, and so has the collector walk through everything, again and again: the
    million objects of PyTorch and of the user took a sixth of the first step of a model whose regions are on disk, and
    new ones a twentieth of the acquisition of a model. Objects that the user has frozen stay so, and so does a
    threshold that the user, or the program, has set higher or to zero.
    """
    if gc.get_freeze_count() > _BY_PYTHON:  # by the user, or by a compilation around this one
        yield
        return
    gc.freeze()
    young, *older = gc.get_threshold()
    raised = (_YOUNG, *older) if 0 < young < _YOUNG else (young, *older)
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(young, *older)
        gc.unfreeze()


def compile_program(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    states: States,
    reason: str,
    varying: VaryingSizes | None = None,
    guesses: Guesses | None = None,
) -> tuple[Entry, tuple[Any, ...]]:
    """Acquire ``function`` with these arguments, transform it, and make it callable.

    Returns the entry and its computation's inputs for this call. ``reason`` says why, for the report. A program that
    communicates is compared with that of other ranks (`thunder_core.runtime.agreement`).

    Args:
        varying: which sizes of inputs are to be symbols; None for constants alone.
        guesses: values that the program reads from tensors, as far as they are known.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    with frozen_heap(), _own_saved_tensors(), progress.compiling(name):
        entry, inputs = _compile(function, args, kwargs, settings, states, reason, varying, guesses)
    if entry.groups:
        agree(name, entry.executed, entry.groups)
    return entry, inputs


@contextmanager
def _own_saved_tensors() -> Iterator[None]:
    """The user's `saved_tensors_hooks` do not see what is saved while a program is compiled."""
    if top_saved_tensors_default_hooks(False) is None:
        yield  # not in vain: `torch.func` refuses to run under such hooks
        return
    with torch.autograd.graph.saved_tensors_hooks(_itself, _itself):
        yield


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _compile(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    states: States,
    reason: str,
    varying: VaryingSizes | None,
    guesses: Guesses | None,
) -> tuple[Entry, tuple[Any, ...]]:
    progress.stage("acquisition")
    start = time.perf_counter()
    if settings.front_end is acquire:
        speculates = settings.config.sharp_edges != "error"
        known = (guesses or Guesses()) if speculates else None
        defines = settings.config.dynamic is not False
        acquired = acquire(function, args, kwargs, varying, known, defines_sizes=defines)
    else:
        acquired = settings.front_end(function, args, kwargs)
    hints = None if acquired.sizes is None else acquired.sizes.hints
    stages = [StageReport("acquisition", time.perf_counter() - start, len(acquired.trace.symbols))]
    settings, preset = with_executors(settings, acquired.trace)
    acquired, manager, program = _transform(acquired, settings, states)
    stages += map(StageReport.of, manager.records)

    progress.stage("prologue")
    start = time.perf_counter()
    checked = settings.config.cache != "same input"  # there the user promises that only the data of tensors changes
    guarded = acquired.guarded or not checked
    names = [proxy.name for proxy in program.final.inputs]
    exact_stride = acquired.saw_strides or program.differentiated is not None  # formulas depend on strides
    sizes = None
    if acquired.input_sizes is not None and acquired.input_sizes.inputs:
        facts = acquired.input_sizes.sizes.facts_of_inputs()
        sizes = SizesGuard.of(acquired.input_sizes.inputs, facts, exact_stride=exact_stride)
    prologue = build_prologue(
        () if guarded else (*acquired.observer.guards(), *acquired.number_guards),
        list(zip(names, program.sources, program.objects, strict=True)),
        state=acquired.observer.global_state,
        shape=CallShape.of(args, kwargs),
        non_overlapping=_pairs_apart(acquired.trace) if checked else (),
        sharing=_sharing(acquired.trace) if checked else (),
        exact_stride=exact_stride,
        metadata=not guarded,
        sizes=sizes,
    )
    acquired.observer.close()
    inputs, unfit = prologue.function(args, kwargs), None
    if inputs is None:
        unfit = prologue.why(args, kwargs) or "the guards disagree with themselves"
        inputs = (*program.objects, *(hints.values() if hints is not None and sizes is not None else ()))
    stages.append(StageReport("prologue", time.perf_counter() - start, None))

    progress.stage("code generation")
    start = time.perf_counter()
    epilogue = program.functional.epilogue
    modes = acquired.trace.context
    symbols = () if sizes is None else tuple(sizes.symbols)
    checks = ResultChecks() if program.differentiated is None else program.differentiated.checks
    if program.as_recorded is not None:
        computation = compile_trace(program.final, sizes=symbols)  # under the caller's autocast, as in eager
    elif program.differentiated is None:
        computation = without_autocast(compile_trace(program.final, costs=checks, sizes=symbols), modes)
    else:
        computation = without_autocast(join(program.differentiated), modes)
    defined = acquired.defined_outputs
    after = compile_trace(epilogue, sizes=(*symbols, *defined)) if epilogue is not None else None
    run = build_run(
        computation,
        after,
        program.functional,
        acquired.reconstruction,
        acquired.has_subclasses,
        hints,
        sizes is not None,
        defined,
    )
    guessed = guesses_of(acquired.trace, acquired.sizes)
    if guessed:
        undo = (
            Undo.of(program.final) if program.as_recorded is None else Undo.of_recorded(acquired.trace, acquired.inputs)
        )
        run = undo.around(run)
    stages.append(StageReport("code generation", time.perf_counter() - start, None))
    repeatable = not acquired.random_states and not acquired.reconstruction.once and unfit is None
    repeatable = repeatable and acquired.raised is None
    cached = settings.config.cache != "no caching" and repeatable
    report = EntryReport(
        reason,
        cached,
        tuple(stages),
        tuple(guard.describe() for guard in prologue.guards),
        len(names),
        executed_lines(program.assignments),
        acquired.reconstruction.writes,
        program.training,
        program.as_recorded,
        regions=_region_report(program),
        preset=preset,
        sizes=SizesReport.of(sizes, acquired.constant_sizes, acquired.varying_floats, acquired.constant_floats),
        values=tuple([guess.describe() for guess in guessed]),
    )
    constants = {
        proxy.name: source.value
        for proxy, source in zip(acquired.trace.inputs, acquired.sources, strict=True)
        if isinstance(source, ConstantSource)
    }
    entry = Entry(
        prologue,
        run,
        program.traces,
        program.backward_traces,
        epilogue,
        report,
        program.assignments,
        constants,
        acquired.random_states,
        program.notes,
        program.later,
        checks,
        program.unclaimed,
        acquired.reconstruction.once,
        unfit,
        settings.executors,
        settings.transforms,
        acquired.raised is not None,
        acquired.sizes,
        guessed,
        acquired.keeps_numbers,
        groups_of(executed_programs(program.traces, program.backward_traces)),
    )
    return entry, inputs


def _transform(acquired: Acquired, settings: Settings, states: States) -> tuple[Acquired, PassManager, Program]:
    """What the passes make of the program; of one with sizes that vary, where they cannot, with constant sizes.

    Sizes that lines define are constants before others are.
    """
    sizes = acquired.sizes
    error: Exception | None = None
    for prepare in () if sizes is None else _preparations(sizes):
        assert sizes is not None
        try:
            prepare()
            with compiling_with(sizes):
                return _transform_with_sizes(acquired.with_sizes_as_found(), sizes, settings, states)
        except Exception as failed:  # noqa: BLE001 - told as a reason; what is wrong without symbols, too, is raised below
            error = failed
    if error is not None:
        acquired = acquired.with_constant_sizes(why_constant(error))
    manager = PassManager()
    return acquired, manager, transform(manager, acquired, settings, states)


def _preparations(sizes: Sizes) -> tuple[Callable[[], None], ...]:
    """What is done before each attempt to transform a program with sizes that vary."""
    if not sizes.defined:
        return (lambda: None,)
    return (lambda: None, sizes.ask_hints, sizes.fix_defined) if sizes.hints else (lambda: None, sizes.ask_hints)


def _transform_with_sizes(
    acquired: Acquired, sizes: Sizes, settings: Settings, states: States
) -> tuple[Acquired, PassManager, Program]:
    manager = PassManager()
    program = transform(manager, acquired, settings, states)
    for trace in program.executed:
        trace.check_bodies()
    sizes.facts()  # raises for one that cannot be checked
    return acquired, manager, program


def _region_report(program: Program) -> RegionReport | None:
    counts = program.regions
    if counts is None or not counts.regions:
        return None
    contents = region_contents((program.final, *program.backward_traces[-1:]))
    return RegionReport.of(counts, contents)


def _pairs_apart(trace: Trace) -> list[tuple[str, str]]:
    """Pairs of inputs of which one is written, and that shared no memory when the program was recorded."""
    inputs = [proxy for proxy in trace.inputs if isinstance(proxy, TensorProxy)]
    written = Aliases.of(trace).written
    return [
        (one.name, other.name)
        for one in inputs
        if one.storage in written
        for other in inputs
        if other.storage != one.storage and (other.storage not in written or one.name < other.name)
    ]


def _sharing(trace: Trace) -> list[tuple[str, ...]]:
    """The inputs in each memory that the program writes, where there are several."""
    names: dict[int, list[str]] = {storage: [] for storage in sorted(Aliases.of(trace).written)}
    for proxy in trace.inputs:
        if isinstance(proxy, TensorProxy) and proxy.storage in names:
            names[proxy.storage].append(proxy.name)
    return [tuple(found) for found in names.values() if len(found) > 1]
