"""Options of `thunder.jit`, validated."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from thunder_core.autodiff.recompute import parse_policy
from thunder_core.errors import OptionError
from thunder_core.executors.installed import INSTALLED

CACHE_MODES = ("constant values", "same input", "no caching")
SHARP_EDGES = ("allow", "warn", "error")


@dataclass(frozen=True)
class Options:
    """How a program is compiled and cached.

    Attributes:
        executors: names of the executors to ask, in order; None for the best that is installed. The reference executor
            ends every list.
        cache: ``"constant values"`` guards on everything the program read; ``"same input"`` compiles once and reuses
            that without checks; ``"no caching"`` compiles at each call.
        sharp_edges: what to do when the program consumes Python's or NumPy's random state: ``"allow"``, ``"warn"``
            (default) or ``"error"``.
        recompute: what training computes again in backward instead of saving it: ``"none"``, ``"cheap"`` (default),
            ``"aggressive"``, or ``{"budget": f}`` for ``f`` times the bytes that the default saves.
        recompile_warning: number of compilations of one program after which each further one warns.
        recompile_limit: number of cached entries after which the program is run by eager PyTorch instead.
    """

    executors: tuple[str, ...] | None = None
    cache: str = "constant values"
    sharp_edges: str = "warn"
    recompute: str | tuple[tuple[str, float], ...] = "cheap"
    recompile_warning: int = 8
    recompile_limit: int = 64

    @property
    def policy(self) -> str | dict[str, float]:
        """``recompute`` as the user wrote it."""
        return self.recompute if isinstance(self.recompute, str) else dict(self.recompute)

    @staticmethod
    def create(executors: Sequence[str] | None = None, **given: Any) -> Options:
        """Check what the user passed.

        Raises:
            OptionError: an unknown option or a value that is not accepted.
        """
        known = [field.name for field in fields(Options)]
        for name in given:
            if name not in known:
                raise OptionError(f"unknown option {name!r}{_nearest(name, known)}", advice=(f"one of {known}",))
        if isinstance(given.get("recompute"), dict):
            given["recompute"] = tuple(given["recompute"].items())  # options are hashable
        options = Options(tuple(executors) if executors is not None else None, **given)
        options._check()
        return options

    def _check(self) -> None:
        if self.cache == "symbolic values":
            raise OptionError(
                'cache="symbolic values" is not available yet: shapes and numbers are compiled as constants',
                advice=('use cache="constant values"; each new shape compiles a new entry',),
            )
        _one_of("cache", self.cache, CACHE_MODES)
        _one_of("sharp_edges", self.sharp_edges, SHARP_EDGES)
        parse_policy(self.policy)
        for name in ("recompile_warning", "recompile_limit"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name} must be a positive int, not {value!r}")
        for executor in self.executors or ():
            if executor not in INSTALLED:
                raise OptionError(
                    f"unknown executor {executor!r}{_nearest(executor, list(INSTALLED))}",
                    advice=(f"installed: {', '.join(INSTALLED)}", "pass executors=None for the default"),
                )


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise OptionError(
            f"{name}={value!r} is not accepted{_nearest(str(value), allowed)}", advice=(f"one of {allowed}",)
        )


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
