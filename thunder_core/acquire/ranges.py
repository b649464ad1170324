"""Comparisons of a random draw with a number that the range of the draw decides.

Models that skip layers at random ask ``torch.rand([]) < self.layerdrop``. With a probability of 0 the answer is False
whatever is drawn, so the program can be recorded. Only the question is answered: the draw is a line of the trace, and
the generator goes on as in eager.

To add one: its range in ``_DRAWS``, which holds for every dtype and device and for all arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.ir.bound_symbol import BoundSymbol, written_storages
from thunder_core.ir.proxy import TensorProxy
from thunder_core.pytorch_internals import disable_current_modes

Tensor: Any = torch.Tensor  # its methods are descriptors, which the stubs do not say


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low``, which is one of them, to ``high``, which is one if the range is ``closed``."""

    low: float
    high: float
    closed: bool = True

    def below(self, limit: float) -> bool | None:
        """Whether its numbers are less than ``limit``; None if some are."""
        if self.high < limit or (self.high == limit and not self.closed):
            return True
        return False if self.low >= limit else None

    def at_most(self, limit: float) -> bool | None:
        """Whether its numbers are not greater than ``limit``; None if some are not."""
        if self.high <= limit:
            return True
        return False if self.low > limit else None


_UNIT: Final = Range(0, 1, closed=False)
_BIT: Final = Range(0, 1)


def _uniform(_tensor: Any, low: Any = 0, high: Any = 1, **_options: Any) -> Range | None:
    if not (isinstance(low, int | float) and isinstance(high, int | float)):
        return None
    if low != 0:  # it is added to the scaled draw, and rounding may carry the sum past the other bound
        return Range(low, math.inf)
    return _UNIT if high == 1 else Range(0, high)


_DRAWS: Final[dict[Any, Callable[..., Range | None]]] = {
    torch.rand: lambda *_, **__: _UNIT,
    torch.rand_like: lambda *_, **__: _UNIT,
    Tensor.uniform_: _uniform,
    torch.bernoulli: lambda *_, **__: _BIT,
    Tensor.bernoulli_: lambda *_, **__: _BIT,
}

_COMPARISONS: Final[dict[Any, Callable[[Range, float], bool | None]]] = {
    torch.lt: Range.below,
    torch.le: Range.at_most,
    torch.gt: lambda drawn, limit: _negated(drawn.at_most(limit)),
    torch.ge: lambda drawn, limit: _negated(drawn.below(limit)),
}

_READS: Final = frozenset({Tensor.__bool__, Tensor.item, Tensor.is_nonzero, torch.is_nonzero})
"""Calls that give the truth of a comparison with one element as a Python bool."""


class RandomRange:
    """Reads comparisons that have one answer for all numbers that may be drawn."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        if request.symbol.target not in _READS:
            return Declined("it does not read the truth of a comparison")
        known = truth(recorder.trace.lines, request.call.proxies[0])
        if known is None:
            return Declined("no range of random numbers decides the comparison")
        return Resolved(known)


def truth(lines: Sequence[BoundSymbol], proxy: TensorProxy) -> bool | None:
    """The value of a comparison's only element in every run, or None if it is not known.

    Args:
        lines: the program up to the question.
        proxy: what the question is about, under its current name.
    """
    found = maker(lines, proxy)
    if found is None or proxy.numel != 1:
        return None
    comparison = lines[found]
    compare = _COMPARISONS.get(comparison.symbol.target)
    if compare is None or comparison.kwargs:
        return None
    drawn, limit = comparison.args
    if not (isinstance(drawn, TensorProxy) and drawn.dtype.is_floating_point and isinstance(limit, int | float)):
        return None
    found = maker(lines[:found], drawn)
    if found is None:
        return None
    draw = lines[found]
    range_of = _DRAWS.get(draw.symbol.target)
    possible = range_of(*draw.args, **draw.kwargs) if range_of is not None else None
    if possible is None:
        return None
    low, high, rounded = _rounded((possible.low, possible.high, limit), drawn.dtype)
    possible = Range(low, high, possible.closed)
    # kernels differ in whether they round the number to the tensor's dtype before they compare
    answers = {compare(possible, float(limit)), compare(possible, rounded)}
    return answers.pop() if len(answers) == 1 else None


def maker(lines: Sequence[BoundSymbol], proxy: TensorProxy) -> int | None:
    """The index of the line that gave a tensor its value; None if another call wrote to its memory since."""
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        if any(output.name == proxy.name for output in line.outputs()):
            return index
        if proxy.storage in written_storages([line]):
            return None
    return None


def _rounded(numbers: Iterable[float], dtype: torch.dtype) -> list[float]:
    with disable_current_modes():
        rounded: list[float] = torch.tensor([float(number) for number in numbers], dtype=dtype).tolist()
        return rounded


def _negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer
