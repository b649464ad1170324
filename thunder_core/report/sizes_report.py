"""Which sizes and Python numbers a compiled program takes as they come, and which it is compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thunder_core.guards.sizes import SizesGuard


@dataclass(frozen=True)
class SizesReport:
    """The sizes and numbers of one compilation that may vary between its calls.

    Attributes:
        symbols: names of sizes and ints, each with where it is read: ``x.shape[0]``.
        floats: where floats are read that vary.
        constants: sizes and numbers that turned out to be constants: ``s1 = x.shape[1] is 17, at model.py:88 in
            forward``.
        conditions: what else calls must fulfil to be served, with the line of the program that asks for it.
        reason: why all sizes are constants though some were to vary; empty otherwise.
    """

    symbols: tuple[tuple[str, str], ...] = ()
    constants: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    reason: str = ""
    floats: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, guard: SizesGuard | None, reason: str, floats: Sequence[str], constant_floats: Sequence[str]
    ) -> SizesReport | None:
        """The report of a compilation; None for one that takes all sizes and numbers as constants, as it was to do."""
        if guard is None:
            fixed_floats = tuple(dict.fromkeys(constant_floats))
            given = reason or floats or constant_floats
            return cls(constants=fixed_floats, reason=reason, floats=tuple(floats)) if given else None
        places, constants, conditions = guard.places, [*constant_floats], []
        for fact in guard.facts:
            where = "" if fact.location is None else f", at {fact.location.describe()}"
            if fact.value is not None:
                name, value = fact.value
                constants.append(f"{name} = {places[name]} is {value}{where}")
            elif fact.location is not None:
                conditions.append(f"{fact.condition}{where}")
        fixed = {fact.value[0] for fact in guard.facts if fact.value is not None}
        symbols = tuple([(name, place) for name, place in places.items() if name not in fixed])
        return cls(symbols, tuple(dict.fromkeys(constants)), tuple(conditions), floats=tuple(floats))

    def lines(self) -> list[str]:
        """For people."""
        if self.reason:
            return [f"sizes are constants: {self.reason}"]
        named = ", ".join([*[f"{name} = {place}" for name, place in self.symbols], *self.floats])
        lines = [f"sizes that vary: {named or 'none'}"]
        lines += [f"  compiled for one size: {text}" for text in self.constants]
        return lines + [f"  only where {text}" for text in self.conditions]
