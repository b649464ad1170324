"""Functions that a program makes over tensors that it computes: ``y.register_hook(lambda gradient: gradient * scale)``.

Where such a function is handed to a line, the prologue makes what is known before the program runs, a `Capturing`
object, and a line gives it the tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.symbol import Symbol
from thunder_core.pytorch_internals import version_of

_EMPTY: Final = object()


@dataclass(frozen=True)
class Captured:
    """The place of a tensor that the program computes, by number."""

    number: int


class Capturing:
    """``make(*parts)``, as soon as the tensors among the parts are there; a call of it is one of the result."""

    def __init__(self, make: Callable[..., Any], *parts: Any) -> None:
        self._make = make
        self._parts = parts
        self._made: Any = _EMPTY
        self._held: list[tuple[torch.Tensor, int]] = []  # the tensors, each with how often it was written to

    def fill(self, tensors: dict[int, torch.Tensor]) -> Any:
        """What is made of these tensors, the same object at each call."""
        if self._made is _EMPTY:
            self._made = self._make(*[_filled(part, tensors) for part in self._parts])
            self._parts = ()
            self._held = [(tensor, version_of(tensor)) for tensor in tensors.values()]
        return self._made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns.

        Raises:
            UnsupportedError: it writes to one of the tensors, which are copies of those of the program.
        """
        result = self._made(*args, **kwargs)
        if any(version_of(tensor) != version for tensor, version in self._held):
            raise UnsupportedError(
                f"{getattr(self._made, '__name__', 'a function')}, a hook or other function of the program, writes to "
                "a tensor that the program computes",
                advice=(
                    "write to a tensor that the program is given: an argument, a buffer",
                    "append to a list instead",
                ),
            )
        return result

    def __getattr__(self, name: str) -> Any:
        """What the function has: its ``__name__``."""
        return getattr(self._made, name)


def _filled(part: Any, tensors: dict[int, torch.Tensor]) -> Any:
    if type(part) is Captured:
        return tensors[part.number]
    return part.fill(tensors) if type(part) is Capturing else part


def capture(function: Capturing, numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]) -> None:
    """Give a function the tensors that it holds. It gets copies: the program may use their memory for other values."""
    function.fill({number: tensor.clone() for number, tensor in zip(numbers, tensors, strict=True)})


CAPTURE: Final = Symbol("thunder_core.symbols.captured.capture", capture)
