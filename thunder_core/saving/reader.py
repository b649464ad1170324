"""Read printed programs, edited or not, back as traces."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunder_core.ir.module_syntax import FunctionSyntax, ModuleSyntax, parse_module
from thunder_core.ir.trace import Trace
from thunder_core.ir.verifier import verify
from thunder_core.saving.function_reader import FunctionReader, LeafWritten


def read_trace(
    source: str, *, filename: str = "<trace>", targets: Mapping[str, Callable[..., Any]] | None = None
) -> Trace:
    """The trace that ``source`` was printed from, or the one that an edited ``source`` means.

    Names, calls, contexts and deletions are read from the code; the user's lines from comments; the metadata of inputs
    from their annotations. The metadata of everything else is derived by running each call on fake tensors, so that
    annotations of edited lines may be out of date.

    Args:
        filename: for error messages.
        targets: the functions that names without a dot stand for.

    Raises:
        TraceSyntaxError: the source is not a trace; a name, function or argument is wrong. The message names the line.
    """
    module = parse_module(source, filename)
    traces: dict[str, Trace] = {}
    for function in module.functions:
        traces[function.node.name] = _read_function(module, function, traces, targets or {})
    trace = traces[module.main]
    verify(trace)
    return trace


def _read_function(
    module: ModuleSyntax, function: FunctionSyntax, traces: dict[str, Trace], targets: Mapping[str, Any]
) -> Trace:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the calls warn of, they do when the program runs
        try:
            return FunctionReader(module, function, traces, targets, leaves=True).read()
        except LeafWritten:  # an input that requires grad is written, so it cannot be a leaf
            return FunctionReader(module, function, traces, targets, leaves=False).read()
