"""Whether two ways to make a call perform the same operations."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.keys import name_key, value_key
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tensors import tensor_inputs_of
from thunder_core.passes.autocast_log import CallLog

Numbers = dict[Hashable, int]


def same_operations(one: CallLog, other: CallLog) -> bool:
    """Whether two logs of a call compute the same values by as many and the same operations.

    Their order does not count where results do not depend on it; nor does it count whether a value is converted before
    or after a view of all its elements.
    """
    numbers: Numbers = {}
    if len(one.lines) != len(other.lines) or one.differentiable != other.differentiable:
        return False
    return _Numbering(one, numbers).meaning() == _Numbering(other, numbers).meaning()


class _Numbering:
    """Numbers the values of a log; equal expressions of two logs that share ``numbers`` have equal numbers."""

    def __init__(self, log: CallLog, numbers: Numbers) -> None:
        self.log = log
        self.numbers = numbers
        self.values = {proxy.name: self._number(("input", proxy.name)) for proxy in log.inputs}
        self.views: dict[str, BoundSymbol] = {}
        self.effects: list[int] = []

    def meaning(self) -> tuple[list[int], list[int]]:
        """The operations with effects, in order, and the outputs."""
        for line in self.log.lines:
            self._visit(line)
        return self.effects, [self.values[proxy.name] for proxy in self.log.outputs]

    def _visit(self, line: BoundSymbol) -> None:
        if line.is_cast():
            self.values[line.output.name] = self._converted(*line.args)
            return
        if is_rearrangement(line):
            (view,) = line.outputs()  # the output may be a list of one, as that of unbind
            self.views[view.name] = line
        key = self._key(line, self.values)
        for index, proxy in enumerate(line.outputs()):
            self.values[proxy.name] = self._number((key, index))
        if not line.effects.pure:
            self.effects.append(self._number(key))

    def _converted(self, proxy: TensorProxy, dtype: torch.dtype) -> int:
        view = self.views.get(proxy.name)
        if view is None:
            return self._number(("conversion", self.values[proxy.name], dtype))
        (source,) = tensor_inputs_of(view)
        return self._number((self._key(view, {source.name: self._converted(source, dtype)}), 0))

    def _key(self, line: BoundSymbol, values: dict[str, int]) -> Hashable:
        def number(value: Any) -> Hashable:
            return values[value.name] if isinstance(value, TensorProxy) else name_key(value)

        kwargs = {name: value for name, value in line.kwargs.items() if not _is_implied(line, name, value)}
        arguments = value_key(line.args, number), value_key(kwargs, number)
        # between two effects nothing is written: only there is the order of no account
        return line.symbol, arguments, len(self.effects)

    def _number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))


def is_rearrangement(line: BoundSymbol) -> bool:
    """Whether a line gives a view of all elements of its only tensor, each once."""
    sources, results = tensor_inputs_of(line), line.outputs()
    if len(sources) != 1 or len(results) != 1 or not line.effects.pure:
        return False
    (source,), (result,) = sources, results
    return (
        isinstance(result, TensorProxy)
        and result.storage == source.storage
        and result.dtype is source.dtype
        and result.numel == source.numel
    )


def _is_implied(line: BoundSymbol, name: str, value: Any) -> bool:
    """Whether an option is what a call has without it: a floating-point result has its argument's dtype."""
    first = next(iter(line.inputs()), None)
    return name == "dtype" and isinstance(first, TensorProxy) and value is first.dtype and value.is_floating_point
