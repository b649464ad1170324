"""The report of the sizes and Python numbers that vary between calls, and of those that became constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thunder_core.checks.sizes import SizesGuard
from thunder_core.contract import RecordedSizes
from thunder_core.ir.location import at


@dataclass(frozen=True)
class SizesReport:
    """The sizes and numbers of one compilation that may vary between its calls.

    Attributes:
        symbols: names of sizes and ints, and of floats with conditions, each with its path: ``x.shape[0]``.
        floats: the paths of other varying floats.
        constants: sizes and numbers that became constants: ``s1 = x.shape[1] is 17, at model.py:88 in forward``.
        conditions: other conditions on the sizes of a call, each with the line of the program that requires it.
        constant_floats: the paths of floats among the constants.
        reason: why all sizes became constants; empty otherwise.
    """

    symbols: tuple[tuple[str, str], ...] = ()
    constants: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    reason: str = ""
    floats: tuple[str, ...] = ()
    constant_floats: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        guard: SizesGuard | None,
        recorded: RecordedSizes,
        floats: Sequence[str],
    ) -> SizesReport | None:
        """The report of a compilation; None if no size or number was to vary."""
        constants = [f"{path}{at(location)}" for path, location in recorded.constant_floats.items()]
        report = cls(
            constants=tuple(constants),
            reason=recorded.why_constant,
            floats=tuple(floats),
            constant_floats=tuple(recorded.constant_floats),
        )
        if guard is None:
            return report if report.reason or floats or constants else None
        places, conditions = guard.places, []
        for fact in guard.facts:
            where = at(fact.location)
            if fact.value is not None:
                name, value = fact.value
                constants.append(f"{name} = {places[name]} is {value}{where}")
            elif fact.location is not None:
                conditions.append(f"{fact.condition}{where}")
        fixed = {fact.value[0] for fact in guard.facts if fact.value is not None}
        symbols = tuple([(name, place) for name, place in places.items() if name not in fixed])
        others = tuple([path for path in floats if path not in places.values()])
        return replace(
            report,
            symbols=symbols,
            constants=tuple(dict.fromkeys(constants)),
            conditions=tuple(conditions),
            floats=others,
        )

    def lines(self) -> list[str]:
        """The report as text."""
        if self.reason:
            return [f"sizes are constants: {self.reason}"]
        symbols = [place if name == place else f"{name} = {place}" for name, place in self.symbols]
        named = ", ".join([*symbols, *self.floats])
        lines = [f"sizes that vary: {named or 'none'}"]
        lines += [f"  compiled for one size: {text}" for text in self.constants]
        return lines + [f"  only where {text}" for text in self.conditions]
