"""The reasons of the compilations of a program, and the warnings about too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from thunder_core.checks.guard import Miss
from thunder_core.errors import RecompileError, RecompileWarning
from thunder_core.ir.location import at
from thunder_core.runtime.guesses import Guess
from thunder_core.settings import Settings
from thunder_core.tracing.frames import warn_user

_MOST_PATHS: Final = 4


class Recompilations:
    """Counts the changes between calls that made a program be compiled again. Warns once early, and at each limit."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.limit_reached = False
        self._outcomes_ended = False
        self._refused = False
        self._ended: set[str] = set()
        self._warned = False
        self._counts: Counter[str] = Counter()
        self._latest: dict[str, Miss] = {}

    def add(self, miss: Miss, entries: int) -> None:
        """Count a miss for which an entry is compiled in addition to ``entries``.

        Warns once with RecompileWarning, at the user's line, when there are many entries.
        """
        self._counts[miss.path] += 1
        self._latest[miss.path] = miss
        if entries < self.settings.recompile_warning or self._warned:
            return
        self._warned = True
        warn_user(
            f"{self.name} was compiled {entries} times and is compiled again, because of changes between calls:"
            f"{self._changes()}\nWhat to do:{self._remedies()}\n"
            f"  - or ignore this warning: after {self.settings.recompile_limit} entries (recompile_limit) eager "
            "PyTorch runs the calls that match none of them",
            RecompileWarning,
        )

    def end(self, miss: Miss) -> None:
        """Record that the limit of entries is reached by this miss. Warns once, as `add`."""
        if self.limit_reached:
            return
        self.limit_reached = True
        self._counts[miss.path] += 1
        self._latest[miss.path] = miss
        warn_user(
            f"{self.name} has {self.settings.recompile_limit} compiled entries (recompile_limit) and is not compiled "
            "again: calls that fit one of them run compiled as before, eager PyTorch runs this call and all others. "
            f"What changed between calls:{self._changes()}\nWhat to do:{self._remedies()}\n"
            "  - or raise recompile_limit, if there are few values, which recur",
            RecompileWarning,
        )

    def refuse(self, misses: Sequence[Miss]) -> str:
        """The reason why eager PyTorch runs a call that no program covers, and for which none may be compiled.

        Warns once, as `add`.

        Args:
            misses: the reason for each entry, the closest first.

        Raises:
            RecompileError: eager PyTorch must not run it either.
        """
        first = misses[0] if misses else Miss("the call", "no cached entry fits", "make it the same each time")
        others = dict.fromkeys([miss.text for miss in misses[1:] if miss.text != first.text])
        more = "".join(f"\n  - {each}" for each in list(others)[: _MOST_PATHS - 1])
        others_text = f"\nIts other programs:{more}" if more else ""
        allow = self.settings.allow_recompiles
        problem = (
            f"no compiled program of {self.name} covers this call, and allow_recompiles={allow!r}: "
            f"{first.text}{others_text}"
        )
        advice = (
            *filter(None, [first.remedy]),
            "make such a call in the warm-up: with thunder.warm_up(compiled): compiled(...)",
        )
        if allow != "eager":
            raise RecompileError(problem, advice=(*advice, 'run such calls in eager PyTorch: allow_recompiles="eager"'))
        if not self._refused:
            self._refused = True
            remedies = "".join(f"\n  - {each}" for each in advice)
            warn_user(
                f"{problem}\nEager PyTorch runs it, and other such calls. What to do:{remedies}", RecompileWarning
            )
        return "no compiled program covers the call, and allow_recompiles='eager'"

    def end_numbers(self, path: str, text: str) -> None:
        """Record that a program is not compiled for further values of the number at a path. Warns once, as `add`."""
        if path in self._ended:
            return
        self._ended.add(path)
        warn_user(
            f"{self.name} needs the value of {path}, which is another in each call: eager PyTorch runs calls with "
            f"values that it was not compiled for. {text}\n"
            "What to do:\n"
            "  - pass the number as a tensor, or avoid code that needs its value, such as a text of it",
            RecompileWarning,
        )

    def end_outcomes(self, guess: Guess, count: int) -> None:
        """Record that a program is compiled for ``count`` outcomes of a value and no others. Warns once, as `add`."""
        if self._outcomes_ended:
            return
        self._outcomes_ended = True
        place = at(guess.location, "\n  at ")
        at_limit = count >= self.settings.outcome_limit
        why = "outcome_limit" if at_limit else "none of which recurred"
        limit = "\n  - or raise outcome_limit, if there are few outcomes, which recur" if at_limit else ""
        warn_user(
            f"{self.name} reads values of tensors, and was compiled for {count} outcomes ({why}): eager PyTorch runs "
            f"calls with other outcomes. The value that differs now is {guess.text}{place}\n"
            "What to do:\n"
            f"  - keep the value a tensor: torch.where, a product with a mask, torch.cond{limit}",
            RecompileWarning,
        )

    def _changes(self) -> str:
        lines = [f"{self._latest[path].text} ({_times(count)})" for path, count in self._most()]
        others = len(self._counts) - len(lines)
        if others:
            lines.append(f"and {others} more; thunder.explain lists the reason of each compilation")
        return "".join(f"\n  - {line}" for line in lines)

    def _remedies(self) -> str:
        paths: dict[str, list[str]] = {}
        for path, _ in self._most():
            paths.setdefault(self._latest[path].remedy, []).append(path)
        return "".join(f"\n  - {', '.join(names)}: {remedy}" for remedy, names in paths.items())

    def _most(self) -> list[tuple[str, int]]:
        return self._counts.most_common(_MOST_PATHS)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
