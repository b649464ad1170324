"""Write down the torch functions that a formula calls on fake tensors, as its author wrote them."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode, storage_address
from thunder_core.acquire.line_log import LineLog
from thunder_core.errors import LoweringError
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.recording import RecordingMode
from thunder_core.symbols.registry import registry


class FunctionLog(LineLog, RecordingMode):
    """While active, each torch function on known fake tensors becomes a bound symbol.

    Questions about metadata are answered and leave no line. Neither do calls all of whose results are known: a view of
    the elements that another value shows, in the same order, is that value (a reshape to the same shape, a transpose of
    a transpose).

    A function that writes to its arguments raises LoweringError.
    """

    def __init__(self, mode: AcquisitionFakeMode) -> None:
        LineLog.__init__(self, mode)
        RecordingMode.__init__(self)
        self._values: dict[Any, TensorProxy] = {}

    def define(self, fake: torch.Tensor, proxy: TensorProxy) -> None:
        super().define(fake, proxy)
        self._values.setdefault(_elements(fake), proxy)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with DisableTorchFunction():  # modes below, such as that of a program that is being acquired
            return self._call(func, args, kwargs or {})

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if registry.is_metadata(func):
            return func(*args, **kwargs)
        with self.mode.observing() as observed:
            result = func(*args, **kwargs)
        if any(storage_address(leaf) in observed.written for leaf in _tensors((args, kwargs))):
            raise LoweringError(f"it writes to its arguments, with {func}")
        tensors = _tensors(result)
        if any(_elements(tensor) not in self._values for tensor in tensors):
            self.record(func, args, kwargs, result, observed)
        for tensor in tensors:
            self.define(tensor, self._values.get(_elements(tensor)) or self.proxy(tensor))
        return result


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in iterate_leaves(values) if isinstance(leaf, torch.Tensor)]


def _elements(tensor: torch.Tensor) -> Any:
    """Which elements a tensor shows: equal for equal values, as long as nobody writes."""
    bits = tensor.is_conj(), tensor.is_neg()
    return storage_address(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), bits
