"""Which sizes and Python numbers vary in a compiled program, by the option ``dynamic`` and the calls so far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from thunder_core.acquire.input_sizes import DeclaredPlace, Places, VaryingSizes, is_marked
from thunder_core.config.declared_sizes import DeclaredSizes
from thunder_core.errors import DeclaredSizeError
from thunder_core.guards.sizes import NUMBER, SizedInput, SizesGuard
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.size import Size, SizeExpr
from thunder_core.runtime.entry import Entry
from thunder_core.runtime.outcomes import Guess
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


_TRIES: Final = 2
"""How often a size that differed is a symbol without that the program can do with one. Constants compile faster."""
_MOST_OUTCOMES_WITH_SYMBOLS: Final = 4
"""How many entries with symbols may fit a call before another value gets entries for one size each."""


class SizePolicy:
    """Decides for one program, and learns from each compilation.

    Args:
        dynamic: the option.
        function: the program.

    Raises:
        OptionError: sizes of parameters are declared that the program does not have.
    """

    def __init__(self, dynamic: bool | Literal["automatic"] | DeclaredSizes, function: Callable[..., Any]) -> None:
        self._dynamic = dynamic
        self._signature = dynamic.signature(function) if isinstance(dynamic, DeclaredSizes) else None
        self._found = VaryingSizes()
        self._failed: VaryingSizes | None = None
        self._constant: Counter[tuple[str, int]] = Counter()

    def next(self, entries: Sequence[Entry], args: tuple[Any, ...], kwargs: dict[str, Any]) -> VaryingSizes | None:
        """Which sizes are to be symbols in the compilation for this call, which no entry serves; None for constants.

        Raises DeclaredSizeError for a call that is not as it was declared.
        """
        if self._dynamic is False:
            return None
        for entry in reversed(entries):
            differing = entry.prologue.differing_sizes(args, kwargs)
            if differing is not None:
                self._found = self._found.with_dimensions(differing)
                break
        if self._dynamic is True:
            return replace(self._found, all=True)
        must_vary = False
        wanted = self._found.without([place for place, count in self._constant.items() if count >= _TRIES])
        if isinstance(self._dynamic, DeclaredSizes):
            assert self._signature is not None
            must_vary = self._dynamic.must_vary
            wanted = replace(wanted, declared=self._dynamic.places(self._signature, args, kwargs))
        if self._failed == wanted and not must_vary:  # it is recorded twice each time otherwise
            return None
        wants = wanted.dimensions or wanted.declared or any(map(is_marked, (*args, *kwargs.values())))
        return wanted if wants else None

    def of_outcome(
        self, changed: Guess, entries: Sequence[Entry], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> VaryingSizes | None:
        """As `next`, for a call that reads a value that none of the entries, whose guards hold, was compiled for.

        Where there were many of them, each size is likely to have its own: an entry for this size serves it at once.
        """
        many = sum([entry.varies for entry in entries]) >= _MOST_OUTCOMES_WITH_SYMBOLS
        if self._dynamic == "automatic" and many and not isinstance(changed.value, bool):
            return None
        return self.next((), args, kwargs)

    def learn(self, varying: VaryingSizes | None, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note of what became of the sizes that were to vary in the compilation for this call.

        Raises DeclaredSizeError where one is a constant that is declared to vary.
        """
        if varying is None or self._dynamic is True:
            return
        if varying.declared and not entry.raises:
            check_declared(varying.declared, entry, args, kwargs)
        report, numbers = entry.made.sizes, varying.wanted_numbers()
        if report is not None and report.reason:
            self._failed = varying
            self._constant.update([(source.describe(), NUMBER) for source in numbers])
        elif report is not None:
            self._constant.update([(path, NUMBER) for path in report.constant_floats])
        self._constant.update(entry.prologue.constant_sizes())
