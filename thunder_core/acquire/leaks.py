"""Traced tensors must not outlive acquisition: find those that do, say where they came from, and remove them."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any, Final

from thunder_core.acquire.tensors import Tensors
from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.errors import LeakedTensorError
from thunder_core.ir.location import SourceLocation

_PATIENCE: Final = 20
"""How often another thread gets 10 ms to let go of frames of the program: sampling profilers look at them."""


def check(tensors: Tensors) -> None:
    """Raise `LeakedTensorError` if a traced tensor or number is still referenced; containers are cleaned first."""
    if not _alive(tensors):
        return
    gc.collect()  # reference cycles of the user's program (frames, closures) are not leaks
    alive = _alive(tensors)
    for _ in range(_PATIENCE if threading.active_count() > 1 else 0):
        if not alive:
            break
        alive = []
        time.sleep(0.01)
        alive = _alive(tensors)
    if not alive:
        return
    locations: list[SourceLocation | None] = []
    holders: list[str] = []
    while alive:
        item = alive.pop()
        variables = item.variables if type(item) is TracedNumber else (tensors.variable(item),)
        locations.append(variables[0].location if variables else None)
        holders.extend(_scrub(item, ignore=(alive, locals())))
    raise _error(", ".join(holders), locations[-1])


def _alive(tensors: Tensors) -> list[Any]:
    """What the program was given, and somebody still holds."""
    return [*tensors.alive(), *[number for reference in tensors.numbers if (number := reference()) is not None]]


def _error(holder: str, location: SourceLocation | None) -> LeakedTensorError:
    return LeakedTensorError(
        f"a tensor or a number computed by the compiled function was stored outside of its results, in {holder}",
        location=location,
        advice=(
            "return it from the function, or store it in a variable, a container or an attribute of an object",
            "if it is for debugging, store tensor.shape or other plain values instead",
        ),
    )


def _scrub(tensor: Any, ignore: tuple[Any, ...]) -> list[str]:
    """Remove a traced tensor or number from the containers that hold it; returns a description of each."""
    described = []
    ignored = {id(item) for item in ignore}
    for holder in gc.get_referrers(tensor):
        if id(holder) in ignored:
            continue
        kind = type(holder)
        if kind is list:
            holder[:] = [item for item in holder if item is not tensor]
        elif kind is dict:
            for key in [key for key, item in holder.items() if item is tensor]:
                del holder[key]
        elif kind is set:
            holder.discard(tensor)
        elif kind.__name__ == "cell":
            holder.cell_contents = None
        elif kind.__name__ == "frame":
            continue
        described.append(f"a {kind.__name__}")
    return described or ["an object that the garbage collector does not know"]
