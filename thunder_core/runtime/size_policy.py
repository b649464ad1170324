"""Which sizes and Python numbers vary in a compiled program, by the option ``dynamic`` and the calls so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from thunder_core.acquire.input_sizes import VaryingSizes, is_marked
from thunder_core.config.declared_sizes import DeclaredSizes
from thunder_core.guards.sizes import NUMBER
from thunder_core.runtime.declared_sizes import check_declared
from thunder_core.runtime.entry import Entry
from thunder_core.runtime.outcomes import Guess

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
