"""Lines that run by their executor and by the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves
from thunder_plugin_debug.difference import Difference, Tolerance, difference
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall
from thunder_plugin_debug.random_state import RandomState, generators_of
from thunder_plugin_debug.reference_gradients import reference_gradients
from thunder_plugin_debug.values import named_values

Report = Callable[[Line, BoundSymbol, tuple[Difference, ...]], None]
"""Called after each comparison with how the values differ; empty if they do not."""


class ComparedCall(LineCall):
    """Calls the executor's function, then the reference with the same arguments, and returns what the former gave.

    A line that draws random numbers draws the same ones both times, and the generators are left as the executor left
    them.
    """

    __slots__ = ("bound", "reference", "report", "tolerance")

    def __init__(
        self, line: Line, bound: BoundSymbol, reference: Callable[..., Any], tolerance: Tolerance, report: Report
    ) -> None:
        super().__init__(line, bound.symbol.target)
        self.bound = bound
        self.reference = reference
        self.tolerance = tolerance
        self.report = report

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        random = RandomState(generators_of(self.bound, (args, kwargs))) if self.bound.effects.random else None
        versions = _versions((args, kwargs))
        result = self.function(*args, **kwargs)
        written = _versions((args, kwargs)) != versions
        left = random.again() if random is not None else None
        try:
            if random is not None:
                random.restore()
            with torch.no_grad():
                expected = self.reference(*args, **kwargs)
                found = tuple(self._differences(result, expected))
        finally:
            if left is not None:
                left.restore()
        if written:
            found = (Difference("", "it writes to its arguments, which executors must not"), *found)
        self.report(self.line, self.bound, found)
        return result

    def _differences(self, result: Any, expected: Any) -> Iterable[Difference]:
        names = self.bound.output
        if _form(result) != _form(expected):
            if not (_is_pair(names) and _is_pair(result) and _form(result[0]) == _form(expected)):
                yield Difference("", f"it returns {_form(result)} instead of {_form(expected)}")
                return
            names, result = names[0], result[0]  # of the forward of a pair: without the residuals
        for (name, actual), (_, wanted) in zip(named_values(names, result), named_values(names, expected), strict=True):
            found = difference(name, actual, wanted, self.tolerance)
            if found is not None:
                yield found


class ComparedBackward(LineCall):
    """Calls the backward of a pair with what `WithArguments` takes, and compares the gradients with autograd's."""

    __slots__ = ("bound", "reference", "report", "tolerance")

    def __init__(
        self, line: Line, bound: BoundSymbol, reference: Callable[..., Any], tolerance: Tolerance, report: Report
    ) -> None:
        super().__init__(line, bound.symbol.target)
        self.bound = bound
        self.reference = reference
        self.tolerance = tolerance
        self.report = report

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        kept, cotangents, wanted = arguments
        result = self.function(kept, cotangents, wanted)
        _, args, kwargs = kept
        expected = reference_gradients(self.reference, args, kwargs, cotangents, wanted)
        found = []
        for proxy, actual, right in zip(self.bound.output, result, expected, strict=True):
            if isinstance(proxy, TensorProxy):
                with torch.no_grad():
                    found.append(difference(proxy.name, actual, right, self.tolerance, strides=False))
        self.report(self.line, self.bound, tuple([one for one in found if one is not None]))
        return result


def _versions(arguments: Any) -> list[int]:
    """How often PyTorch has seen each tensor written to; it does not count for tensors of inference mode."""
    return [
        leaf._version
        for leaf in iterate_leaves(arguments)
        if isinstance(leaf, torch.Tensor) and not leaf.is_inference()
    ]


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _form(value: Any) -> str:
    """How a result is nested, in words."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_form, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{key}: {_form(item)}" for key, item in value.items()]) + "}"
    return "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__
