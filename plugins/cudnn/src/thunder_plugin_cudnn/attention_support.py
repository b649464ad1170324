"""The decision whether cuDNN runs a call of attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from thunder_plugin_composites.attention_calls import AttentionCall
from thunder_plugin_cudnn import library, plans
from thunder_plugin_cudnn.attention_conditions import unfit_call, unfit_dropout, unfit_gradient, unfit_size
from thunder_plugin_cudnn.attention_graphs import attention_backward, attention_forward
from thunder_plugin_cudnn.layouts import Layout, canonical_layout, layout_of_proxy, ordered_strides
from thunder_plugin_cudnn.mask_conditions import unfit_mask
from thunder_plugin_cudnn.masks import bias_layout


@dataclass(frozen=True, slots=True)
class Support:
    """Conditions of the plugin and the library, followed by cuDNN's check, which compiles the graphs of the call.

    Attributes:
        dropout: whether dropout is allowed.
        deterministic: whether backward must be deterministic.
        device: the type of device for cuDNN.
    """

    dropout: bool
    deterministic: bool
    device: str

    def __call__(self, *args: Any, **kwargs: Any) -> bool | str:
        """True, or the reason why the call is declined."""
        return self._reason(AttentionCall.of(*args, **kwargs)) or True

    def _reason(self, call: AttentionCall) -> str | None:
        reason = unfit_call(call, self.device) or unfit_mask(call) or unfit_dropout(call, self.dropout)
        if reason is not None:
            return reason
        hardware = library.hardware(call.query.device.index)
        if hardware is None:
            return "there is no CUDA device"
        deterministic = self.deterministic or torch.are_deterministic_algorithms_enabled()
        reason = library.unfit_version(hardware.version) or unfit_size(call, hardware)
        reason = reason or unfit_gradient(call, hardware, deterministic)
        return reason or _refusal(call, deterministic)


def _refusal(call: AttentionCall, deterministic: bool) -> str | None:
    """cuDNN's reason for forward, and for backward if gradients may be needed."""
    query, key, value = (layout_of_proxy(tensor) for tensor in call.inputs.values())
    output = _dense(query[0], (*query[1][:3], value[1][3]), call.query.stride)
    bias = None if call.mask is None else bias_layout(call.mask, call.query.dtype)
    scale = 1 / math.sqrt(query[1][3]) if call.scale is None else call.scale
    shared = (call.causal, scale, call.dropout)
    forward = (query, key, value, output, bias, *shared, call.differentiated)
    reason = plans.refusal(attention_forward, call.query.device, forward)
    if reason is not None or not call.differentiated:
        return reason
    gradients = tuple([_dense(tensor.dtype, tensor.shape, tensor.stride) for tensor in call.inputs.values()])
    of_bias = bias if call.mask is not None and call.mask.requires_grad else None
    backward = (query, key, value, output, output, gradients, bias, of_bias, *shared, deterministic)
    return plans.refusal(attention_backward, call.query.device, backward)


def _dense(dtype: torch.dtype, shape: tuple[Any, ...], stride: tuple[Any, ...]) -> Layout:
    return canonical_layout(dtype, tuple(shape), ordered_strides(tuple(shape), stride))
