"""Write down the ATen operations that a call on fake tensors performs, forward and backward alike."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode, storage_address
from thunder_core.acquire.line_log import LineLog
from thunder_core.acquire.native_attention import NATIVE_ATTENTION
from thunder_core.errors import LoweringError
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import TorchDispatchMode, aten_to_copy

# Calls that make another object of the same tensor: no line, since traces run without recording gradients.
_SAME_VALUE = frozenset(
    {torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.lift_fresh.default}
)

# Operators whose kernels ask whether gradients are recorded, and return less if not.
_ASKS_GRAD_MODE = frozenset({torch.ops.aten.mkldnn_rnn_layer.default})


class OperatorLog(LineLog, TorchDispatchMode):
    """While active, each ATen operation on known fake tensors becomes a bound symbol. Enter it inside ``mode``."""

    def __init__(self, mode: AcquisitionFakeMode) -> None:
        LineLog.__init__(self, mode)
        TorchDispatchMode.__init__(self)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ASKS_GRAD_MODE:
            raise LoweringError(f"{func} does something else where no gradients are recorded")
        if func in NATIVE_ATTENTION:
            raise LoweringError(f"{func} calls operators that nobody sees")
        with self.mode.observing() as observed:
            result = func(*args, **kwargs)
        if func in _SAME_VALUE and isinstance(args[0], torch.Tensor) and isinstance(result, torch.Tensor):
            self.define(result, self.proxy(args[0]))
            return result
        if func is torch.ops.aten.bernoulli_.float and self._draw_mask(*args):
            return result
        if observed.external or any(isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(result)):
            self.record(func, args, kwargs, result, observed)
        return result

    def _draw_mask(self, tensor: torch.Tensor, p: float = 0.5, generator: Any = None) -> bool:
        """Log a draw into a tensor that was just made as one of bools and its conversion, for dropout to keep.

        PyTorch draws the same numbers for each dtype, in the order of memory. False where that does not fit.
        """
        fresh = bool(self.lines) and self.lines[-1].output == self.proxy(tensor)
        if not fresh or generator is not None or tensor.device.type != "cpu" or not tensor.is_contiguous():
            return False
        self.lines.pop()
        aten = torch.ops.aten
        shape = list(tensor.shape)
        empty = self._logged(aten.empty.memory_format, shape, dtype=torch.bool, device=tensor.device)
        value = self._logged(aten_to_copy, self._logged(aten.bernoulli.p, empty, p), dtype=tensor.dtype)
        self.define(tensor, self.proxy(value))
        self._storages[storage_address(tensor)] = self.proxy(value).storage
        return True

    def _logged(self, func: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self.mode.observing() as observed:
            result: torch.Tensor = func(*args, **kwargs)
        self.record(func, args, kwargs, result, observed)
        return result
