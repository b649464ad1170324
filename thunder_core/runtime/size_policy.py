"""Select the sizes and numbers that become symbols in a compilation, by the option ``dynamic`` and earlier calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from thunder_core.checks.sizes import NUMBER, SizedInput, SizesGuard
from thunder_core.checks.varying_sizes import DeclaredDimension, DeclaredDimensions, VaryingSizes, is_marked
from thunder_core.errors import DeclaredSizeError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.size import Size, SizeExpr
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.guesses import Guess
from thunder_core.settings import Dynamic
from thunder_core.tracing.sizes import SMALLEST


def _check_declared(
    declared: DeclaredDimensions, entry: CacheEntry, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Check that the declared sizes of a call are symbols of the entry that was compiled for it.

    Sizes that the program does not use are not checked, and neither are sizes 0 and 1, which are always constants.

    Raises:
        DeclaredSizeError: a size is a constant, and a Dim or ``Dim.DYNAMIC`` declares that it varies.
    """
    guard = next((guard for guard in entry.prologue.guards if isinstance(guard, SizesGuard)), None)
    tensors = [] if guard is None else [one for one in guard.inputs if isinstance(one, SizedInput)]
    shapes = {id(one.source.read(args, kwargs)): one.shape for one in tensors}
    reason = "" if entry.size_report is None else entry.size_report.reason
    for tensor, dimensions in declared.items():
        for index, dimension in dimensions.items():
            if dimension.declared.kind != "dynamic" or dimension.size < SMALLEST:
                continue
            if reason:
                raise _error(dimension, reason, None)
            if guard is not None and tensor in shapes:
                _check_varies(dimension, shapes[tensor][index], entry, guard)


def _check_varies(dimension: DeclaredDimension, size: Size, entry: CacheEntry, guard: SizesGuard) -> None:
    assert isinstance(size, SizeExpr), f"{dimension.path} has no symbol"
    name = str(size)
    if entry.sizes is None or entry.sizes.constant(name) is None:
        return
    facts = [fact for fact in guard.facts if re.search(rf"\b{name}\b", fact.condition)]
    fact = next((fact for fact in facts if fact.value is not None), facts[-1])
    raise _error(dimension, f"it needs {fact.condition}", fact.location)


def _error(dimension: DeclaredDimension, why: str, location: SourceLocation | None) -> DeclaredSizeError:
    return DeclaredSizeError(
        f"{dimension.path} is declared as {dimension.declared.text}, and the program makes it a constant: {why}",
        location=location,
        advice=(
            "avoid code that needs the value of the size",
            "declare Dim.AUTO, or nothing: then each size is compiled separately",
        ),
    )


_TRIES: Final = 2
"""After so many compilations in which a size could not stay symbolic, it is a constant. Constants compile faster."""
_MOST_OUTCOMES_WITH_SYMBOLS: Final = 4
"""With so many entries with symbols whose guards hold, the entry for another value has constant sizes."""


@dataclass(frozen=True)
class ConstantNumber:
    """A Python number whose value the program needs.

    Attributes:
        path, kind: its path and class.
        text: what needs it, for messages.
    """

    path: str
    kind: type
    text: str


class SizePolicy:
    """The policy for one program. It learns from the calls and compilations of the program.

    Args:
        dynamic: the option ``dynamic``.
        function: the program.

    Raises:
        OptionError: ``dynamic`` declares sizes of parameters that the program does not have.
    """

    def __init__(self, dynamic: Dynamic, function: Callable[..., Any]) -> None:
        self._dynamic = dynamic
        self._declared = None if isinstance(dynamic, bool | str) else dynamic
        self._signature = None if self._declared is None else self._declared.signature(function)
        self._varied = VaryingSizes()
        self._failed: VaryingSizes | None = None
        self._constant: Counter[tuple[str, int]] = Counter()

    def next(self, entries: Sequence[CacheEntry], args: tuple[Any, ...], kwargs: dict[str, Any]) -> VaryingSizes | None:
        """The sizes that become symbols in the compilation for a call for which there is no entry; None for constants.

        Raises:
            DeclaredSizeError: the call contradicts the declarations.
        """
        if self._dynamic is False:
            return None
        for entry in reversed(entries):
            differing = entry.prologue.differing_sizes(args, kwargs)
            if differing is not None:
                self._varied = self._varied.with_dimensions(differing)
                break
        if self._dynamic is True:
            return replace(self._varied, all=True)
        must_vary = False
        wanted = self._varied.without([dimension for dimension, count in self._constant.items() if count >= _TRIES])
        if self._declared is not None:
            assert self._signature is not None
            must_vary = self._declared.must_vary
            wanted = replace(wanted, declared=self._declared.dimensions(self._signature, args, kwargs))
        if self._failed == wanted and not must_vary:  # else each call would be recorded twice
            return None
        wants = wanted.dimensions or wanted.declared or any(map(is_marked, (*args, *kwargs.values())))
        return wanted if wants else None

    def constant_number(
        self, entries: Sequence[CacheEntry], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ConstantNumber | None:
        """A number with another value in this call than in the last compilation, although it could not be a symbol."""
        for source, dimensions in (entries[-1].prologue.differing_sizes(args, kwargs) or {}).items():
            path = source.describe()
            if NUMBER in dimensions and self._constant[path, NUMBER] >= _TRIES:
                reports = [entry.size_report for entry in reversed(entries) if entry.size_report is not None]
                lines = [line for report in reports for line in report.constants if path in line]
                return ConstantNumber(path, type(source.read(args, kwargs)), next(iter(lines), ""))
        return None

    def of_outcome(
        self, changed: Guess, entries: Sequence[CacheEntry], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> VaryingSizes | None:
        """As `next`, for a call that reads a value for which there is no entry.

        If there are entries for many values, each size probably has its own value, so constants are used: then the
        guards of one entry hold for a call.

        Args:
            changed: the value.
            entries: the entries for other values, whose guards hold.
        """
        many = sum([entry.varies for entry in entries]) >= _MOST_OUTCOMES_WITH_SYMBOLS
        if self._dynamic == "automatic" and many and not isinstance(changed.value, bool):
            return None
        return self.next((), args, kwargs)

    def learn(
        self, varying: VaryingSizes | None, entry: CacheEntry, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Record which of the selected sizes stayed symbolic in the compilation for a call.

        Raises:
            DeclaredSizeError: a size is a constant, and is declared to vary.
        """
        if varying is None or self._dynamic is True:
            return
        if varying.declared and entry.raised is None:
            _check_declared(varying.declared, entry, args, kwargs)
        report, numbers = entry.size_report, varying.wanted_numbers()
        if report is not None and report.reason:
            self._failed = varying
            self._constant.update([(source.describe(), NUMBER) for source in numbers])
        elif report is not None:
            self._constant.update([(path, NUMBER) for path in report.constant_floats])
        self._constant.update(entry.prologue.constant_sizes())
