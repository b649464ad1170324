"""Exceptions of programs.

A program that ends with an exception is compiled: each run performs its writes, then raises the exception.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.contract import Reconstruction
from thunder_core.errors import EndsRecording, RunEnds, ThunderError
from thunder_core.tracing.tracebacks import is_defect, note
from thunder_frontend.record.open_trace import OpenTrace
from thunder_frontend.record.traced_tensor import holds_traced_tensor


def ends_program(error: BaseException, trace: OpenTrace) -> bool:
    """Whether an exception was raised by the program, not by its recording.

    Adds a note to the exception where the trace lacks some of the calls before it, so that it cannot run.
    """
    if isinstance(error, ThunderError | EndsRecording | RunEnds) or is_defect(error):
        return False
    if trace.is_region_cut or trace.outer_ops:
        note(error, "it was raised inside of a checkpoint region, an autograd.Function or the like")
        return False
    return True


def contents(error: BaseException) -> Any:
    """The arguments and attributes of an exception to reconstruct, if they hold tensors of the program; else None."""
    held = (error.args, vars(error))
    return held if holds_traced_tensor(held) else None


def raising(reconstruction: Reconstruction, error: BaseException) -> Reconstruction:
    """A reconstruction that raises ``error``; the result of ``reconstruction`` is `contents` of the exception."""
    namespace = {**reconstruction.namespace, "raise_error": _raise, "errors": [error]}
    return replace(reconstruction, result=f"raise_error(errors, {reconstruction.result})", namespace=namespace)


def _raise(errors: list[BaseException], rebuilt: tuple[tuple[Any, ...], dict[str, Any]] | None) -> None:
    error = errors.pop()  # a program that raises runs once; a reference would form a cycle with the traceback
    try:
        if rebuilt is not None:
            error.args, attributes = rebuilt
            vars(error).update(attributes)
        raise error
    finally:
        del error
