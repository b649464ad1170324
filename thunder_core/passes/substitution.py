"""Several lines of a trace as the torch functions that a Python function calls in their place."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.tracing.rewriting import rewritten_form


class Substitution:
    """Makes lines for a trace that take the place of a pattern in it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def builder(self) -> Builder:
        """Names and storages for the new lines."""
        return Builder.of(self._trace)

    def lines(
        self, function: Callable[..., Any], args: tuple[Any, ...], result: Any, at: BoundSymbol
    ) -> tuple[BoundSymbol, ...] | None:
        """The calls that ``function(*args)`` makes, with the proxies of ``result`` as its result.

        They are recorded once for arguments of equal metadata. ``function`` belongs to a module and is called with fake
        tensors.

        Args:
            at: the line whose context and place in the user's program they have.

        Returns:
            None where ``function`` fails for these arguments, or where its result has other metadata.
        """
        pattern = BoundSymbol(_symbol(function), args, {}, result, context=at.context, location=at.location)
        try:
            form = rewritten_form(pattern, function, self._trace.context)
        except LoweringError:
            return None
        return self.builder.inline(form, pattern)


@cache
def _symbol(function: Callable[..., Any]) -> Symbol:
    """One for each function, so that equal patterns have equal keys. It never is in a trace."""
    return Symbol(f"{function.__module__}.{function.__name__}", function)
