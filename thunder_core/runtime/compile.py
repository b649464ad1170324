"""Compile a program for the arguments of one call: acquire it, transform it, and generate its prologue and code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core import progress
from thunder_core.checks.guard import CallShape
from thunder_core.checks.own_lookups import name_of
from thunder_core.checks.prologue import Prologue, build_prologue
from thunder_core.checks.sizes import SizesGuard
from thunder_core.checks.source import ConstantSource
from thunder_core.checks.varying_sizes import VaryingSizes
from thunder_core.contract import AssumedValues, Recording, Request
from thunder_core.errors import without_plugins
from thunder_core.executors.states import States
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.ir.trace import Trace
from thunder_core.passes.pass_manager import PassManager, StageReport
from thunder_core.pytorch_internals import (
    ForceDispatchKeyGuard,
    dispatch_tls_local_exclude_set,
    dispatch_tls_local_include_set,
    top_saved_tensors_default_hooks,
)
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.frozen_heap import frozen_heap
from thunder_core.runtime.guesses import guesses_of
from thunder_core.runtime.own_state import StateBefore
from thunder_core.runtime.run_function import run_function
from thunder_core.runtime.sizes_report import SizesReport
from thunder_core.runtime.transform import ExecutableProgram, transform
from thunder_core.settings import Settings
from thunder_core.symbols.channels import groups_of
from thunder_core.tracing.sizes import Sizes, compiling_with, why_constant


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
    """Acquire ``function`` with these arguments, transform it, and generate its code.

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
            with frozen_heap(), _without_saved_tensors_hooks(), progress.compiling(name):
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
        acquired = settings.front_end.record(function, args, kwargs, _request(settings, varying, known))
    stages[0] = replace(stages[0], lines=len(acquired.trace.symbols))
    hints = {} if acquired.sizes.symbols is None else acquired.sizes.symbols.hints
    settings, preset = settings.for_device(device_of(acquired.trace))
    acquired, manager, program = _transform(acquired, settings, states)
    stages += map(StageReport.of, manager.records)
    with _stage(stages, "prologue"):
        sizes = _sizes_guard(acquired, program)
        prologue = _prologue(acquired, program, settings, CallShape.of(args, kwargs), sizes)
        inputs, unfit = prologue.function(args, kwargs), None
        if inputs is None:
            unfit = prologue.why(args, kwargs) or "a guard does not hold for the call that was compiled"
            symbols = hints.values() if sizes is not None and sizes.symbols else ()
            inputs = (*acquired.inputs, *program.constants.values(), *symbols)
    with _stage(stages, "code generation"):
        checks = ResultChecks() if program.differentiated is None else program.differentiated.checks
        guesses = guesses_of(acquired.trace, acquired.sizes.symbols)
        run = run_function(acquired, program, sizes, hints, checks, undoes=bool(guesses))
    repeatable = not acquired.random_states and not acquired.result.uncopied and acquired.raised is None
    entry = CacheEntry(
        prologue=prologue,
        run=run,
        program=program,
        reason=reason,
        cached=settings.cache != "no caching" and repeatable and unfit is None,
        stages=tuple(stages),
        preset=preset,
        writes=acquired.result.writes,
        size_report=SizesReport.of(sizes, acquired.sizes, acquired.varying_floats),
        checks=checks,
        constants=acquired.constant_inputs,
        random_states=acquired.random_states,
        uncopied=acquired.result.uncopied,
        unfit=unfit,
        executors=settings.executors,
        transforms=settings.transforms,
        raised=acquired.raised,
        sizes=acquired.sizes.symbols,
        guesses=guesses,
        traces_numbers=acquired.traces_numbers,
        groups=groups_of(program.executed.values()),
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


def _transform(
    acquired: Recording, settings: Settings, states: States
) -> tuple[Recording, PassManager, ExecutableProgram]:
    """Run the passes. If they fail with symbolic sizes, use constants: for sizes that ops define, then for all."""
    sizes = acquired.sizes.symbols
    error: Exception | None = None
    for prepare in () if sizes is None else _preparations(sizes):
        assert sizes is not None
        try:
            prepare()
            with compiling_with(sizes):
                return _transform_with_sizes(acquired.with_sizes_as_found(), sizes, settings, states)
        except Exception as failed:  # noqa: BLE001 - reported as the reason; an error without symbols is raised below
            error = failed
    if error is not None:
        acquired = acquired.with_constant_sizes(why_constant(error))
    manager = PassManager()
    return acquired, manager, transform(manager, acquired, settings, states)


def _preparations(sizes: Sizes) -> tuple[Callable[[], None], ...]:
    """The preparation of each attempt to transform a program with symbolic sizes."""
    if not sizes.defined:
        return (_no_preparation,)
    attempts = (_no_preparation, sizes.use_hints)
    return (*attempts, sizes.fix_defined) if sizes.hints else attempts


def _no_preparation() -> None:
    """The first attempt needs none."""


def _transform_with_sizes(
    acquired: Recording, sizes: Sizes, settings: Settings, states: States
) -> tuple[Recording, PassManager, ExecutableProgram]:
    manager = PassManager()
    program = transform(manager, acquired, settings, states)
    epilogue = program.functional.epilogue
    for trace in (*program.executed.values(), *(() if epilogue is None else (epilogue,))):
        trace.check_bodies()
    sizes.facts()  # raises for a fact that cannot be checked
    return acquired, manager, program


def _exact_stride(acquired: Recording, program: ExecutableProgram) -> bool:
    """Whether guards compare all strides of inputs, because the program reads them or derivatives depend on them."""
    return acquired.saw_strides or program.differentiated is not None


def _sizes_guard(acquired: Recording, program: ExecutableProgram) -> SizesGuard | None:
    sized = acquired.sizes
    facts = () if sized.symbols is None or not sized.inputs else sized.symbols.facts_of_inputs()
    facts, floats = (*facts, *sized.facts.conditions), sized.facts.floats
    inputs = sized.inputs
    if not inputs and not floats:
        return None
    return SizesGuard.of(inputs, facts, floats, exact_stride=_exact_stride(acquired, program))


def _prologue(
    acquired: Recording, program: ExecutableProgram, settings: Settings, shape: CallShape, sizes: SizesGuard | None
) -> Prologue:
    checked = settings.cache != "same input"  # with which the user promises that only data of tensors changes
    guarded = acquired.checked_by_caller or not checked
    names = [proxy.name for proxy in program.final.inputs]
    constants = [(ConstantSource(value, "created by a transform"), value) for value in program.constants.values()]
    inputs = [*zip(acquired.sources, acquired.inputs, strict=True), *constants]
    return build_prologue(
        (*(() if guarded else acquired.guards), *program.guards),
        [(name, source, value) for name, (source, value) in zip(names, inputs, strict=True)],
        state=acquired.state,
        shape=shape,
        non_overlapping=_pairs_apart(acquired.trace) if checked else (),
        sharing=_sharing(acquired.trace) if checked else (),
        exact_stride=_exact_stride(acquired, program),
        metadata=not guarded,
        sizes=sizes,
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
