"""The table of kernels: their conditions and their functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.backends import cuda

from thunder_core.errors import SizeVariesError
from thunder_core.executors import DerivativePair
from thunder_core.ir.size import Size
from thunder_plugin_sdpa import conditions as need
from thunder_plugin_sdpa import cudnn, efficient, flash, flash_cpu, mask_conditions
from thunder_plugin_sdpa.call import Call
from thunder_plugin_sdpa.conditions import Condition
from thunder_plugin_sdpa.fakes import fakes_of
from thunder_plugin_sdpa.formula import with_mask_for_kernels


@dataclass(frozen=True, eq=False)
class Backend:
    """A kernel.

    Attributes:
        name: its name in the option ``backends`` and in reasons.
        device: the type of supported devices.
        needs: conditions, cheap ones first.
        run: the operation without residuals.
        pair: the derivative pair.
        accepts: PyTorch's check on fake tensors, if there is one. It decides for the installed version of PyTorch, and
            ``needs`` only supply the reason. For symbolic sizes both must accept: ``needs`` all sizes, PyTorch those of
            the recording.
        besides: conditions that PyTorch does not check, for calls whose results would be wrong.
        groups: whether there may be fewer key heads than query heads; otherwise keys and values are repeated.
        masked: the additive value of a bool mask where it is false.
        scattered: whether it reads masks in whose rows elements are not adjacent; otherwise these are copied.
    """

    name: str
    device: str
    needs: tuple[Condition, ...]
    run: Callable[..., torch.Tensor]
    pair: DerivativePair
    accepts: Callable[[Any], bool] | None = None
    besides: tuple[Condition, ...] = ()
    groups: bool = True
    masked: float = -math.inf
    scattered: bool = False

    def rewrite(self, call: Call, stride: tuple[Size, ...]) -> Callable[..., torch.Tensor] | None:
        """What a call whose mask is bool, or scattered, is rewritten to for the kernel; None for other calls.

        Args:
            call: a supported call.
            stride: of its result.
        """
        is_bool = call.mask is not None and call.mask.dtype is torch.bool
        changes = is_bool or (call.has_scattered_mask and not self.scattered)
        return with_mask_for_kernels(self.masked, stride) if changes else None

    def refusal(self, call: Call) -> str | None:
        """The reason for declining a call; None if it is supported."""
        reason = need.plain(call)
        if reason is None and call.query.device.type != self.device:
            reason = f"it runs on {self.device}, and the tensors are on {call.query.device}"
        if reason is not None:
            return reason
        if call.grouped and not self.groups and need.heads(call) is None:
            call = call.repeated()
        if call.has_scattered_mask:
            call = call.with_adjacent_rows()
        reason = _first(self.besides, call)
        if reason is not None:
            return reason
        if self.accepts is not None and call.varies:
            return self._reason(call) or self.refusal(call.recorded())
        if self.accepts is not None and torch.cuda.is_available() and mask_conditions.mask_dtype(call) is None:
            if _accepted(self.accepts, call):
                return None
            return self._reason(call) or f"torch.backends.cuda.can_use_{self.name}_attention returned False"
        return self._reason(call)

    def _reason(self, call: Call) -> str | None:
        return _first((*self.besides, *self.needs), call)


def _first(conditions: tuple[Condition, ...], call: Call) -> str | None:
    """The first reason of the conditions."""
    try:
        return next((reason for condition in conditions if (reason := condition(call)) is not None), None)
    except SizeVariesError as error:
        return str(error)


def _accepted(accepts: Callable[[Any], bool], call: Call) -> bool:
    query, key, value, *mask = fakes_of(call)
    with torch.cuda.device(call.query.device), torch.set_grad_enabled(call.differentiated):
        parameters = cuda.SDPAParams(
            query, key, value, mask[0] if mask else None, float(call.dropout), call.causal, call.grouped
        )
        return accepts(parameters)


_HALF: Final = (torch.float16, torch.bfloat16)
_COMMON: Final = (need.same_batch, need.heads, need.adjacent_elements)

BACKENDS: Final = (
    Backend(
        "cudnn",
        "cuda",
        (
            need.switched_on(cuda.cudnn_sdp_enabled, "cuDNN attention"),
            need.capability((8, 0)),
            need.dtypes(*_HALF),
            need.not_deterministic,
            *_COMMON,
            mask_conditions.constant_mask,
            mask_conditions.mask_shape,
            mask_conditions.mask_dtype,
            need.dropout_in_sixteenths,
            need.largest_size(128),
            need.aligned_size,
            need.several_keys,
        ),
        cudnn.run,
        cudnn.PAIR,
        cuda.can_use_cudnn_attention,
        besides=(need.not_empty, mask_conditions.finite_gradients),
        masked=cudnn.MASKED,
    ),
    Backend(
        "flash",
        "cuda",
        (
            need.switched_on(cuda.flash_sdp_enabled, "flash attention"),
            need.capability((8, 0)),
            need.dtypes(*_HALF),
            mask_conditions.no_mask,
            *_COMMON,
            need.equal_sizes,
            need.largest_size(256),
            need.square_if_causal,
        ),
        flash.run,
        flash.PAIR,
        cuda.can_use_flash_attention,
        besides=(need.not_empty,),
    ),
    Backend(
        "flash",
        "cpu",
        (
            need.switched_on(cuda.flash_sdp_enabled, "flash attention"),
            need.dtypes(torch.float32, torch.float64, *_HALF),
            need.no_dropout,
            need.no_empty_sequence,
            *_COMMON,
            need.equal_sizes,
            mask_conditions.constant_mask,
            mask_conditions.mask_shape,
            mask_conditions.mask_dtype,
        ),
        flash_cpu.run,
        flash_cpu.PAIR,
        scattered=True,
    ),
    Backend(
        "efficient",
        "cuda",
        (
            need.switched_on(cuda.mem_efficient_sdp_enabled, "memory-efficient attention"),
            need.capability((5, 0)),
            need.dtypes(torch.float32, *_HALF),
            *_COMMON,
            mask_conditions.mask_shape,
            mask_conditions.mask_dtype,
            need.aligned_size,
        ),
        efficient.run,
        efficient.PAIR,
        cuda.can_use_efficient_attention,
        besides=(need.not_empty,),
        groups=False,
    ),
)
