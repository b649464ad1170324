"""Which sizes a compiled program takes as they come, and which it is compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.guards.sizes import SizesGuard


@dataclass(frozen=True)
class SizesReport:
    """The sizes of one compilation that may vary between its calls.

    Attributes:
        symbols: their names, each with where it is read: ``x.shape[0]``.
        constants: sizes that turned out to be constants: ``s1 = x.shape[1] is 17, at model.py:88 in forward``.
        conditions: what else calls must fulfil to be served, with the line of the program that asks for it.
        reason: why all sizes are constants though some were to vary; empty otherwise.
    """

    symbols: tuple[tuple[str, str], ...] = ()
    constants: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    reason: str = ""

    @classmethod
    def of(cls, guard: SizesGuard | None, reason: str) -> SizesReport | None:
        """The report of a compilation; None for one that takes all sizes as constants, as it was to do."""
        if guard is None:
            return cls(reason=reason) if reason else None
        places, constants, conditions = guard.places, [], []
        for fact in guard.facts:
            where = "" if fact.location is None else f", at {fact.location.describe()}"
            if fact.value is not None:
                name, value = fact.value
                constants.append(f"{name} = {places[name]} is {value}{where}")
            elif fact.location is not None:
                conditions.append(f"{fact.condition}{where}")
        fixed = {fact.value[0] for fact in guard.facts if fact.value is not None}
        symbols = tuple([(name, place) for name, place in places.items() if name not in fixed])
        return cls(symbols, tuple(dict.fromkeys(constants)), tuple(conditions))

    def lines(self) -> list[str]:
        """For people."""
        if self.reason:
            return [f"sizes are constants: {self.reason}"]
        named = ", ".join([f"{name} = {place}" for name, place in self.symbols])
        lines = [f"sizes that vary: {named or 'none'}"]
        lines += [f"  compiled for one size: {text}" for text in self.constants]
        return lines + [f"  only where {text}" for text in self.conditions]
