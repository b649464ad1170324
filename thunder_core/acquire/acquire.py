"""Acquisition: run the user's program once and write it down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.acquire import leaks
from thunder_core.acquire.active import set_active_recorder
from thunder_core.acquire.eager_modules import Key, key_of, module_to_blame
from thunder_core.acquire.interception import intercepted, intercepting
from thunder_core.acquire.mode import AcquisitionMode
from thunder_core.acquire.rebuild import Rebuilder, Recipe
from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import DataDependentError, UnsupportedError
from thunder_core.guards.observer import Observer
from thunder_core.guards.shared_memory import base_of, is_recorded
from thunder_core.guards.source import Source
from thunder_core.ir.attention_kernels import attention_kernels, only_kernels
from thunder_core.ir.context import current_context
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.trace import Stage, Trace


@dataclass(frozen=True)
class Acquired:
    """A recorded program.

    Attributes:
        trace: the program; its output is the flat tuple of tensors that ``recipe`` asks for.
        sources: where the prologue finds each input of the trace.
        inputs: the objects that they were this time.
        observer: what was read from Python, and what was written.
        recipe: how to rebuild the program's result, and its writes to Python objects, from the outputs.
        saw_strides: the program asked for strides, so that they matter even where they do not decide what is read.
        random_states: random generators outside of PyTorch that the program consumed.
    """

    trace: Trace
    sources: tuple[Source, ...]
    inputs: tuple[Any, ...]
    observer: Observer
    recipe: Recipe
    random_states: tuple[str, ...]
    saw_strides: bool

    @property
    def leaves(self) -> frozenset[str]:
        """Names of the inputs that require grad and are leaves of the autograd graph, as parameters are."""
        pairs = zip(self.trace.inputs, self.inputs, strict=True)
        return frozenset(p.name for p, v in pairs if isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf)

    @property
    def families(self) -> tuple[frozenset[str], ...]:
        """Names of the inputs that autograd takes for views of one tensor, where there are several."""
        names: dict[int, list[str]] = {}
        for proxy, value in zip(self.trace.inputs, self.inputs, strict=True):
            if isinstance(value, torch.Tensor) and is_recorded(value):
                names.setdefault(base_of(value)._cdata, []).append(proxy.name)
        return tuple(frozenset(found) for found in names.values() if len(found) > 1)


def acquire(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Acquired:
    """Run ``function(*args, **kwargs)`` once without computing anything, and return it as a trace.

    The program's changes to Python objects are undone afterwards; they are part of what was recorded.

    Raises:
        AcquisitionError: the program cannot be recorded; the message names the user's line.
        Exception: whatever the program itself raises.
    """
    eager: frozenset[Key] = frozenset()
    first: DataDependentError | None = None
    while True:
        try:
            return _attempt(function, args, kwargs, eager)
        except DataDependentError as error:
            module = module_to_blame(error, function, eager)
            if module is None:
                if first is None:
                    raise
                raise first from None
            first = first or error
            eager |= {key_of(module)}


def _attempt(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    eager_modules: frozenset[Key],
) -> Acquired:
    observer = Observer(function, args, kwargs)
    recorder = Recorder(observer.source_of, eager_modules)
    try:
        outputs: list[Proxy] = []
        recipe = _run(function, args, kwargs, recorder, observer, outputs)
        random_states = tuple(observer.consumed_python_rng())
    finally:
        observer.undo()
    leaks.check(recorder)
    trace = Trace(
        "computation",
        tuple(recorder.inputs.proxies),
        tuple(recorder.lines),
        tuple(outputs),
        Stage.ACQUIRED,
        "acquisition",
        recorder.ambient,
    )
    sources, objects = tuple(recorder.inputs.sources), tuple(recorder.inputs.objects)
    recorder.close()
    return Acquired(trace, sources, objects, observer, recipe, random_states, recorder.saw_strides)


def _run(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    recorder: Recorder,
    observer: Observer,
    outputs: list[Proxy],
) -> Recipe:
    function = intercepted(function)
    previous = set_active_recorder(recorder)
    grad_enabled = torch.is_grad_enabled()
    try:
        with (
            only_kernels(recorder.kernels),
            intercepting(),
            recorder.mode,
            AcquisitionMode(recorder, observer),
        ):
            with observer:
                result = function(*args, **kwargs)
            _check_modes(recorder)
        writes = observer.writes()
        leaks.refuse([write for write in writes if write.leak])
        return Rebuilder(recorder, observer, outputs).recipe(result, writes)
    finally:
        torch.set_grad_enabled(grad_enabled)
        set_active_recorder(previous)


def _check_modes(recorder: Recorder) -> None:
    before, after = recorder.ambient, current_context()
    kernels = attention_kernels()
    if kernels != recorder.kernels:
        before, after = replace(before, attention=recorder.kernels), replace(after, attention=kernels)
    if before != after:
        raise UnsupportedError(
            f"the program leaves PyTorch's modes changed: {before} became {after}",
            advice=("use torch.no_grad(), torch.autocast, torch.nn.attention.sdpa_kernel and the like in `with`",),
        )
