"""Programs that end with an exception: each run first performs the writes of the program, then raises it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.reconstruction import Reconstruction
from thunder_core.acquire.tracebacks import is_defect
from thunder_core.acquire.traced_tensor import holds_traced_tensor
from thunder_core.errors import ThunderError


def ends_program(error: Exception, trace: OpenTrace) -> bool:
    """Whether an exception was raised by the program, not by its recording.

    It gets a note where the lines before it are not all known, so that they cannot run.
    """
    if isinstance(error, ThunderError) or is_defect(error):
        return False
    if trace.is_region_cut or trace.outer_lines:
        note(error, "it was raised inside of a checkpoint region, an autograd.Function or the like")
        return False
    return True


def note(error: Exception, reason: str) -> None:
    """Add a note to an exception: writes of the program before it may be lost, except in-place writes."""
    error.add_note(f"Thunder: what the program wrote before this exception is not all written, as {reason}.")


def contents(error: Exception) -> Any:
    """What has to be rebuilt of an exception: its arguments and attributes, if they hold tensors of the program."""
    held = (error.args, vars(error))
    return held if holds_traced_tensor(held) else None


def raising(reconstruction: Reconstruction, error: Exception) -> Reconstruction:
    """The reconstruction with an exception in place of a result, which is `contents` of the exception."""
    namespace = {**reconstruction.namespace, "raise_error": _raise, "error": error}
    return replace(reconstruction, result=f"raise_error(error, {reconstruction.result})", namespace=namespace)


def _raise(error: Exception, rebuilt: tuple[tuple[Any, ...], dict[str, Any]] | None) -> None:
    if rebuilt is not None:
        error.args, attributes = rebuilt
        vars(error).update(attributes)
    raise error
