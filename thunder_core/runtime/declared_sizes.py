"""Whether sizes vary in a compiled program that are declared to."""

from __future__ import annotations

import re
from typing import Any

from thunder_core.acquire.declared_sizes import DeclaredPlace, Places
from thunder_core.errors import DeclaredSizeError
from thunder_core.guards.sizes import SizedInput, SizesGuard
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.size import Size, SizeExpr
from thunder_core.runtime.entry import Entry
from thunder_core.tracing.sizes import SMALLEST


def check_declared(declared: Places, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check an entry against what is declared of the sizes of the call that it was compiled for.

    Sizes that the program does not use count for nothing, and 0 and 1 are constants in any case.

    Raises:
        DeclaredSizeError: a size is a constant that a Dim or ``Dim.DYNAMIC`` declares to vary.
    """
    guard = next((guard for guard in entry.prologue.guards if isinstance(guard, SizesGuard)), None)
    tensors = [] if guard is None else [one for one in guard.inputs if isinstance(one, SizedInput)]
    shapes = {id(one.source.read(args, kwargs)): one.shape for one in tensors}
    reason = "" if entry.made.sizes is None else entry.made.sizes.reason
    for tensor, places in declared.items():
        for index, place in places.items():
            if place.declared.kind != "dynamic" or place.size < SMALLEST:
                continue
            if reason:
                raise _error(place, reason, None)
            if guard is not None and tensor in shapes:
                _check_varies(place, shapes[tensor][index], entry, guard)


def _check_varies(place: DeclaredPlace, size: Size, entry: Entry, guard: SizesGuard) -> None:
    assert isinstance(size, SizeExpr), f"{place.place} has no symbol"
    name = str(size)
    if entry.sizes is None or entry.sizes.constant(name) is None:
        return
    facts = [fact for fact in guard.facts if re.search(rf"\b{name}\b", fact.condition)]
    told = next((fact for fact in facts if fact.value is not None), facts[-1])
    raise _error(place, f"it needs {told.condition}", told.location)


def _error(place: DeclaredPlace, why: str, location: SourceLocation | None) -> DeclaredSizeError:
    return DeclaredSizeError(
        f"{place.place} is declared as {place.declared.text}, and the program makes it a constant: {why}",
        location=location,
        advice=(
            "leave out what needs the number itself",
            "declare Dim.AUTO, or nothing: then another size is another compilation",
        ),
    )
