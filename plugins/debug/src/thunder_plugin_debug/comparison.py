"""Operations that run with their executor and with the reference."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import tensors_in
from thunder_plugin_debug.difference import Difference, Tolerance, difference
from thunder_plugin_debug.journal import Journal
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall
from thunder_plugin_debug.pytorch_internals import version_of
from thunder_plugin_debug.random_state import RandomState, generators_of
from thunder_plugin_debug.reference_gradients import reference_gradients
from thunder_plugin_debug.values import named_values


class Comparison(LineCall):
    """Calls the executor's function, then the reference with the same arguments, and returns the executor's result.

    Both calls start with the same state of the random generators, which is afterwards that of the executor's call. If
    the reference raises, the journal has the reason.
    """

    __slots__ = ("bound", "journal", "reference", "tolerance")

    def __init__(
        self, line: Line, bound: BoundSymbol, reference: Callable[..., Any], tolerance: Tolerance, journal: Journal
    ) -> None:
        super().__init__(line, bound.symbol.target)
        self.bound = bound
        self.reference = reference
        self.tolerance = tolerance
        self.journal = journal

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        random = RandomState(generators_of(self.bound, (args, kwargs))) if self.bound.effects.random else None
        versions = _versions((args, kwargs))
        result = self.function(*args, **kwargs)
        written = _versions((args, kwargs)) != versions
        left = random.again() if random is not None else None
        try:
            if random is not None:
                random.restore()
            expected = self.expected(args, kwargs)
        except Exception as error:  # noqa: BLE001 - PyTorch may lack what the executor has, or the memory for both
            self.journal.skip(self.line, f"the reference failed with {type(error).__name__}: {error}")
            return result
        finally:
            if left is not None:
                left.restore()
        with torch.no_grad():
            mismatches = self.differences(result, expected)
        if written:
            mismatches.insert(0, Difference("", "it writes to its arguments, which executors must not"))
        self.journal.compared(self.line, self.bound, tuple(mismatches))
        return result

    @abstractmethod
    def expected(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the reference."""

    @abstractmethod
    def differences(self, result: Any, expected: Any) -> list[Difference]:
        """The differences of the executor's result."""


class ComparedCall(Comparison):
    """An operation, a fused region, or the forward of a derivative pair, whose residuals are not compared."""

    __slots__ = ()

    def expected(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The reference's result; for the forward of a pair its outputs without residuals."""
        with torch.no_grad():
            return self.reference(*args, **kwargs)

    def differences(self, result: Any, expected: Any) -> list[Difference]:
        """The differences in the values of the trace."""
        names = self.bound.output
        if _form(result) != _form(expected):
            if not (_is_pair(names) and _is_pair(result) and _form(result[0]) == _form(expected)):
                return [Difference("", f"it returns {_form(result)} instead of {_form(expected)}")]
            names, result = names[0], result[0]
        both = zip(named_values(names, result), named_values(names, expected), strict=True)
        results = [difference(name, actual, right, self.tolerance) for (name, actual), (_, right) in both]
        return [one for one in results if one is not None]


class ComparedBackward(Comparison):
    """The backward of a pair, called with the arguments of `WithArguments`. Strides of gradients are not compared."""

    __slots__ = ()

    def expected(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The gradients from PyTorch's autograd."""
        (_, forward_args, forward_kwargs), cotangents, wanted = args
        return reference_gradients(self.reference, forward_args, forward_kwargs, cotangents, wanted)

    def differences(self, result: Any, expected: Any) -> list[Difference]:
        """The differences in the gradients that the program uses."""
        results = [
            difference(proxy.name, actual, right, self.tolerance, strides=False)
            for proxy, actual, right in zip(self.bound.output, result, expected, strict=True)
            if isinstance(proxy, TensorProxy)
        ]
        return [one for one in results if one is not None]


def _versions(arguments: Any) -> list[int]:
    """The version counters of the tensors; inference tensors have none."""
    tensors = tensors_in(arguments)
    return [version_of(tensor) for tensor in tensors if not tensor.is_inference()]


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _form(value: Any) -> str:
    """The nesting of a result as text."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_form, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{key}: {_form(item)}" for key, item in value.items()]) + "}"
    return "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__
