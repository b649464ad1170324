"""Acquire small programs without guards, and run what passes make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes.functionalize import (
    FromComputation,
    FromEpilogue,
    FromInput,
    Functionalize,
    Functionalized,
)
from thunder_core.passes.pass_manager import PassManager
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record.aten_calls import record_aten
from thunder_frontend.record.attempt import Attempt
from thunder_frontend.record.interceptions import intercepting
from thunder_frontend.record.mode import AcquisitionMode
from thunder_frontend.record.recorder import Recorder, set_active_recorder
from thunder_frontend.record.resolvers import RESOLVERS


@dataclass(frozen=True)
class Argument:
    """A stand-in for an access path."""

    text: str

    def describe(self) -> str:
        return self.text


@dataclass
class Program:
    """An acquired program and the objects of its inputs."""

    trace: Trace
    inputs: list[Any]


def acquire_program(function: Callable[..., Any], *args: Any) -> Program:
    """Record ``function(*args)``; its result must be a tensor or a tuple of tensors and literals."""
    names = {id(value): f"a{index}" for index, value in enumerate(args)}
    recorder = Recorder(
        lambda value: Argument(names.get(id(value), "constant")), RESOLVERS, record_aten, Attempt(graph=True)
    )
    previous = set_active_recorder(recorder)
    try:
        with intercepting(), recorder.tensors.fake_mode, AcquisitionMode(recorder, Observer(function, args)):
            result = function(*args)
    finally:
        set_active_recorder(previous)
    leaves = list(iterate_leaves(result if isinstance(result, tuple) else (result,)))
    output = tuple(recorder.tensors.proxies(leaves))
    inputs = tuple(recorder.inputs.proxies)
    trace = Trace(
        "computation",
        inputs,
        tuple(recorder.trace.ops),
        output,
        Stage.ACQUIRED,
        "acquisition",
        recorder.trace.ambient,
    )
    return Program(trace, [item.value for item in recorder.inputs])


def functionalize(trace: Trace) -> Functionalized:
    return PassManager(verify=True).run(Functionalize(), trace)


def run_functionalized(result: Functionalized, inputs: list[Any]) -> tuple[Any, ...]:
    """Do what the runtime does."""
    values = compile_trace(result.computation)(*inputs)

    def value(source: Any, more: Any = ()) -> Any:
        match source:
            case FromInput(index):
                return inputs[index]
            case FromComputation(index):
                return values[index]
            case FromEpilogue(index):
                return more[index]
        return source.value

    more = ()
    if result.epilogue is not None:
        more = compile_trace(result.epilogue)(*[value(source) for source in result.epilogue_arguments])
    return tuple(value(source, more) for source in result.results)
