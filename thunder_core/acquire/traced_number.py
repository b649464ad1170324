"""A Python number that only the running program knows."""

from __future__ import annotations

from typing import Any, NoReturn

from thunder_core.acquire import data_dependence
from thunder_core.acquire.variable import Variable
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.user_frames import user_location


class TracedNumber:
    """The result of ``torch.equal`` or ``torch.allclose`` while a program is recorded.

    The program may return or store it; any use of its value raises `DataDependentError` with the user's line.
    """

    __slots__ = ("proxy", "symbol", "variables")

    def __init__(self, proxy: NumberProxy, symbol: Symbol, variables: tuple[Variable, ...]) -> None:
        self.proxy = proxy
        self.symbol = symbol
        self.variables = variables

    def _needed(self, *_: Any) -> NoReturn:
        raise data_dependence.error(
            self.symbol, self.variables, user_location(), data_dependence.ValueNeeded(self.symbol.name)
        )

    __bool__ = __int__ = __float__ = __index__ = __str__ = __format__ = _needed
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _needed
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _needed
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _needed
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TracedNumber({self.proxy.name}: {self.proxy.python_type.__name__})"
