"""Closures of a program over tensors that it computes: ``y.register_hook(lambda gradient: gradient * scale)``.

If such a closure is an argument of an op, the prologue creates a `Capturing` object from the values that are known
before the program runs, and another op passes it the tensors.
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
    """Placeholder of a tensor that the program computes, by number."""

    number: int


class Capturing:
    """A callable that forwards to ``make(*parts)``, which is created once the tensors among the parts are computed."""

    def __init__(self, make: Callable[..., Any], *parts: Any) -> None:
        self._make = make
        self._parts = parts
        self._made: Any = _EMPTY
        self._held: list[tuple[torch.Tensor, int]] = []  # the tensors, each with its version

    def fill(self, tensors: dict[int, torch.Tensor]) -> Any:
        """The result of ``make`` with these tensors in place of the `Captured` parts."""
        if self._made is _EMPTY:
            self._made = self._make(*[_filled(part, tensors) for part in self._parts])
            self._parts = ()
            self._held = [(tensor, version_of(tensor)) for tensor in tensors.values()]
        return self._made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the created function.

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
        """An attribute of the created function, such as its ``__name__``."""
        return getattr(self._made, name)


def _filled(part: Any, tensors: dict[int, torch.Tensor]) -> Any:
    if type(part) is Captured:
        return tensors[part.number]
    return part.fill(tensors) if type(part) is Capturing else part


def capture(function: Capturing, numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]) -> None:
    """Pass a `Capturing` function copies of its tensors: the program may reuse their storages for other values."""
    function.fill({number: tensor.clone() for number, tensor in zip(numbers, tensors, strict=True)})


CAPTURE: Final = Symbol("thunder_core.symbols.captured.capture", capture)
