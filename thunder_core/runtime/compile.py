"""Compile a program for the arguments of one call: record it, transform it, and generate its prologue and code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core import progress
from thunder_core.checks.guard import CallShape
from thunder_core.checks.own_lookups import name_of
from thunder_core.checks.prologue import Prologue, build_prologue
from thunder_core.checks.sizes import SizesGuard
from thunder_core.checks.source import ConstantSource, Source
from thunder_core.checks.varying_sizes import VaryingSizes
from thunder_core.contract import AssumedValues, Recording, Request
from thunder_core.errors import without_plugins
from thunder_core.executors.states import States
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.ir.trace import Trace
from thunder_core.passes.pass_manager import StageReport
from thunder_core.pytorch_internals import (
    ForceDispatchKeyGuard,
    dispatch_tls_local_exclude_set,
    dispatch_tls_local_include_set,
    top_saved_tensors_default_hooks,
)
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.garbage_collection import postponed_collections
from thunder_core.runtime.guesses import guesses_of
from thunder_core.runtime.own_state import StateBefore
from thunder_core.runtime.run_function import run_function
from thunder_core.runtime.size_retries import transform_with_retries
from thunder_core.runtime.sizes_report import SizesReport
from thunder_core.runtime.transform import ExecutableProgram
from thunder_core.runtime.unguarded import has_unguarded, with_checks
from thunder_core.settings import Settings
from thunder_core.symbols.channels import groups_of


def device_of(trace: Trace) -> str:
    """The type of device of a program: that of its first tensor on an accelerator, else ``cpu``."""
    return next((device for device in _devices(trace) if device not in ("cpu", "meta")), "cpu")


def _devices(trace: Trace) -> Iterator[str]:
    for proxy in trace.inputs:
        if isinstance(proxy, TensorProxy):
            yield proxy.device.type
    for bound in trace.symbols:
        for result in bound.outputs():
            if isinstance(result, TensorProxy):
                yield result.device.type


def compile_program(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    states: States,
    reason: str,
    varying: VaryingSizes | None = None,
    guesses: AssumedValues | None = None,
) -> tuple[CacheEntry, tuple[Any, ...]]:
    """Record ``function`` with these arguments, transform it, and generate its code.

    The caller has to call `Transform.before_first_run` of all transforms before the first run.

    Args:
        function, args, kwargs: the program and the arguments of the call.
        settings: how to compile it.
        states: the states of ops of executors.
        reason: why it is compiled, for the report.
        varying: the sizes of inputs that become symbols; None for constants only.
        guesses: the known values of tensors that the program reads.

    Returns:
        The entry, and the inputs of its computation for this call.
    """
    name = name_of(function)
    before = StateBefore.current()
    with ForceDispatchKeyGuard(dispatch_tls_local_include_set(), dispatch_tls_local_exclude_set()):
        try:
            for each in settings.transforms:
                each.before_compilation()
            with postponed_collections(), _without_saved_tensors_hooks(), progress.compiling(name):
                return _compile(function, args, kwargs, settings, states, reason, varying, guesses)
        except BaseException as error:
            before.restore(error)
            raise


@contextmanager
def _without_saved_tensors_hooks() -> Iterator[None]:
    """A context in which the user's `saved_tensors_hooks` do not see tensors that the compiler saves."""
    if top_saved_tensors_default_hooks(False) is None:
        yield  # without hooks: `torch.func` refuses to run under any
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield


def _compile(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    states: States,
    reason: str,
    varying: VaryingSizes | None,
    known: AssumedValues | None,
) -> tuple[CacheEntry, tuple[Any, ...]]:
    stages: list[StageReport] = []
    with _stage(stages, "acquisition"), without_plugins(settings.advice):
        recording = settings.front_end.record(function, args, kwargs, _request(settings, varying, known))
    stages[0] = replace(stages[0], lines=len(recording.trace.symbols))
    hints = {} if recording.sizes.symbols is None else recording.sizes.symbols.hints
    settings, preset = settings.for_device(device_of(recording.trace))
    recording, manager, program = transform_with_retries(recording, settings, states)
    stages += map(StageReport.of, manager.records)
    with _stage(stages, "prologue"):
        sizes = _sizes_guard(recording, program)
        paths = (*recording.sources, *_constant_sources(program))
        prologue = _prologue(recording, program, settings, CallShape.of(args, kwargs), sizes, paths)
        inputs, unfit = prologue.function(args, kwargs), None
        if inputs is None:
            unfit = prologue.why(args, kwargs) or "a guard does not hold for the call that was compiled"
            symbols = hints.values() if sizes is not None and sizes.symbols else ()
            inputs = (*recording.inputs, *program.constants.values(), *symbols)
    with _stage(stages, "code generation"):
        checks = ResultChecks() if program.differentiated is None else program.differentiated.checks
        guesses = guesses_of(recording.trace, recording.sizes.symbols)
        unguarded = has_unguarded(recording.trace)
        run = run_function(recording, program, sizes, hints, checks, undoes=bool(guesses) or unguarded)
        if unguarded:
            names = [*[proxy.name for proxy in program.final.inputs], *([] if sizes is None else sizes.symbols)]
            checks_of_reads = _prologue(recording, program, settings, prologue.shape, sizes, paths, modes=False)
            run = with_checks(run, names, checks_of_reads)
    repeatable = not recording.random_states and not recording.result.uncopied and recording.raised is None
    entry = CacheEntry(
        prologue=prologue,
        run=run,
        program=program,
        sources=paths,
        result=recording.result,
        reason=reason,
        cached=settings.cache != "no caching" and repeatable and unfit is None,
        stages=tuple(stages),
        preset=preset,
        writes=recording.result.writes,
        size_report=SizesReport.of(sizes, recording.sizes, recording.varying_floats),
        checks=checks,
        constants=recording.constant_inputs,
        random_states=recording.random_states,
        uncopied=recording.result.uncopied,
        unfit=unfit,
        executors=settings.executors,
        transforms=settings.transforms,
        raised=recording.raised,
        sizes=recording.sizes.symbols,
        guesses=guesses,
        may_end=bool(guesses) or unguarded,
        traces_numbers=recording.traces_numbers,
        groups=groups_of(program.executed.values()),
        retries=recording.retries,
    )
    return entry, inputs


@contextmanager
def _stage(stages: list[StageReport], name: str) -> Iterator[None]:
    """Measure a stage of the compilation and add it to ``stages``."""
    progress.stage(name)
    start = time.perf_counter()
    yield
    stages.append(StageReport(name, time.perf_counter() - start, None))


def _request(settings: Settings, varying: VaryingSizes | None, assumed: AssumedValues | None) -> Request:
    return Request(
        varying=varying,
        assumed_values=None if settings.sharp_edges == "error" else assumed or AssumedValues(),
        defines_sizes=settings.dynamic is not False,
        wrapper_classes=settings.wrapper_classes,
    )


def _exact_stride(recording: Recording, program: ExecutableProgram) -> bool:
    """Whether guards compare all strides of inputs, because the program reads them or derivatives depend on them."""
    return recording.saw_strides or program.differentiated is not None


def _sizes_guard(recording: Recording, program: ExecutableProgram) -> SizesGuard | None:
    sized = recording.sizes
    facts = () if sized.symbols is None or not sized.inputs else sized.symbols.facts_of_inputs()
    facts, floats = (*facts, *sized.facts.conditions), sized.facts.floats
    inputs = sized.inputs
    if not inputs and not floats:
        return None
    return SizesGuard.of(inputs, facts, floats, exact_stride=_exact_stride(recording, program))


def _constant_sources(program: ExecutableProgram) -> list[Source]:
    return [ConstantSource(value, "created by a transform") for value in program.constants.values()]


def _prologue(
    recording: Recording,
    program: ExecutableProgram,
    settings: Settings,
    shape: CallShape,
    sizes: SizesGuard | None,
    paths: Sequence[Source],
    *,
    modes: bool = True,
) -> Prologue:
    checked = settings.cache != "same input"  # with which the user promises that only data of tensors changes
    guarded = recording.checked_by_caller or not checked
    names = [proxy.name for proxy in program.final.inputs]
    values = (*recording.inputs, *program.constants.values())
    return build_prologue(
        (*(() if guarded else recording.guards), *program.guards),
        list(zip(names, paths, values, strict=True)),
        state=recording.state,
        shape=shape,
        non_overlapping=_pairs_apart(recording.trace) if checked else (),
        sharing=_sharing(recording.trace) if checked else (),
        exact_stride=_exact_stride(recording, program),
        metadata=not guarded,
        sizes=sizes,
        modes=modes,
    )


def _pairs_apart(trace: Trace) -> list[tuple[str, str]]:
    """Pairs of inputs of which one is written, and that had different storages when the program was recorded."""
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
    """For each storage that the program writes, the inputs with this storage, if there are several."""
    names: dict[int, list[str]] = {storage: [] for storage in sorted(Aliases.of(trace).written)}
    for proxy in trace.inputs:
        if isinstance(proxy, TensorProxy) and proxy.storage in names:
            names[proxy.storage].append(proxy.name)
    return [tuple(group) for group in names.values() if len(group) > 1]
