"""What weights are quantized to: torchao's configuration for a weight on its device, or why there is none."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from thunder_plugin_quantization.combinations import check_combination
from thunder_plugin_quantization.library import Int4PackingFormat, NF4Tensor, quantization

_INT4_GROUPS: Final = (128, 64, 32)
"""Sizes of groups that are tried in this order for int4 weights."""
_TINYGEMM_GROUPS: Final = (256, 128, 64, 32)
_NF4_BLOCK: Final = 64
_NF4_SCALES: Final = 256
"""torchao's number of scales of NF4 weights that are quantized together."""
INT4: Final[torch.dtype] = getattr(torch, "int4")  # noqa: B009  # not in PyTorch's annotations
FLOAT8_MULTIPLE: Final = 16
"""Of this are the sizes of matrices that float8 matmuls of PyTorch take."""


class CannotQuantizeError(Exception):
    """A weight cannot be quantized. The message is the reason, a clause."""


@dataclass(frozen=True)
class Format:
    """What weights, and the inputs of their layers, are quantized to; as in `QuantizationOptions`.

    Raises:
        OptionError: no kernel of torchao can run this combination.
    """

    weights: str = "int8"
    activations: str | None = None
    group_size: int | None = None
    differentiable: bool = False

    def __post_init__(self) -> None:
        check_combination(self.weights, self.activations, self.group_size, self.differentiable)

    def quantized(self, weight: Tensor) -> Tensor:
        """A weight of torchao's classes, of shape (out features, in features), without a graph.

        Args:
            weight: of that shape, float32, bfloat16 or float16.

        Raises:
            CannotQuantizeError: there is no kernel for this weight, or torchao refuses it.
        """
        device = weight.device
        if device.type not in ("cpu", "cuda"):
            raise CannotQuantizeError(f"its weight is on {device.type}; kernels for cpu and cuda are supported")
        if not bool(torch.isfinite(weight).all()):
            raise CannotQuantizeError("some of its weights are not finite")
        if self.weights == "nf4":
            return self._nf4(weight.detach())
        return _by_torchao(weight.detach(), self._configuration(weight))

    def _configuration(self, weight: Tensor) -> Any:
        match self.weights, self.activations:
            case "int8", None:
                return quantization.Int8WeightOnlyConfig(granularity=self._granularity(weight), **_UNCHANGED)
            case "int8", _:
                return quantization.Int8DynamicActivationInt8WeightConfig(**_UNCHANGED)
            case "float8", None:
                return quantization.Float8WeightOnlyConfig(granularity=self._granularity(weight), **_UNCHANGED)
            case "float8", _:
                _check_float8_matmuls(weight)
                rows = quantization.PerRow() if weight.dtype is torch.bfloat16 else quantization.PerTensor()
                return quantization.Float8DynamicActivationFloat8WeightConfig(granularity=rows, **_UNCHANGED)
            case "int4", "int8":
                return quantization.Int8DynamicActivationIntxWeightConfig(
                    weight_dtype=INT4, weight_granularity=quantization.PerGroup(self._int4_group(weight))
                )
            case "int4", "float8":
                _check_mslk(weight)
                return quantization.Float8DynamicActivationInt4WeightConfig()
        return self._int4(weight)

    def _int4(self, weight: Tensor) -> Any:
        group = self._int4_group(weight)
        if not self.differentiable and _has_tinygemm(weight) and group in _TINYGEMM_GROUPS:
            return quantization.Int4WeightOnlyConfig(
                group_size=group,
                int4_packing_format=Int4PackingFormat.TILE_PACKED_TO_4D,
                **_UNCHANGED,
            )
        return quantization.IntxWeightOnlyConfig(weight_dtype=INT4, granularity=quantization.PerGroup(group))

    def _int4_group(self, weight: Tensor) -> int:
        if self.group_size is None:
            for size in _INT4_GROUPS:
                if weight.shape[1] % size == 0:
                    return size
        return self._divisor(weight, self.group_size or _INT4_GROUPS[-1])

    def _granularity(self, weight: Tensor) -> Any:
        if self.group_size is None:
            return quantization.PerRow()
        return quantization.PerGroup(self._divisor(weight, self.group_size))

    def _divisor(self, weight: Tensor, size: int) -> int:
        if weight.shape[1] % size:
            raise CannotQuantizeError(f"its {weight.shape[1]} input features are not a multiple of the group of {size}")
        return size

    def _nf4(self, weight: Tensor) -> Tensor:
        block = self.group_size or _NF4_BLOCK
        if weight.numel() % block:
            raise CannotQuantizeError(f"its {weight.numel()} weights are not a multiple of the group of {block}")
        scales = math.gcd(weight.numel() // block, _NF4_SCALES)
        quantized: NF4Tensor = NF4Tensor.from_tensor(weight.contiguous(), block, scales)
        result: Tensor = quantized
        return result


_UNCHANGED: Final = {"set_inductor_config": False}
"""torchao would otherwise set options of Inductor, and the precision of all matmuls, for the whole process."""


def _by_torchao(weight: Tensor, configuration: Any) -> Tensor:
    """The weight of a layer after `torchao.quantization.quantize_`."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    try:
        quantization.quantize_(layer, configuration, filter_fn=lambda *_: True)
    except (AssertionError, ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        raise CannotQuantizeError(f"torchao refuses it: {error}") from error
    result = layer.weight
    if type(result) is nn.Parameter:
        raise CannotQuantizeError("torchao leaves it as it is")
    return result.detach()


def _check_float8_matmuls(weight: Tensor) -> None:
    if not has_float8_matmuls(weight.device):
        raise CannotQuantizeError(
            f"matmuls in float8 need a GPU of compute capability 8.9 or newer, and it is on {describe(weight.device)}"
        )
    if weight.shape[0] % FLOAT8_MULTIPLE or weight.shape[1] % FLOAT8_MULTIPLE:
        raise CannotQuantizeError(f"its features {tuple(weight.shape)} are not multiples of {FLOAT8_MULTIPLE}")


def _check_mslk(weight: Tensor) -> None:
    if not has_float8_matmuls(weight.device) or weight.dtype is not torch.bfloat16:
        raise CannotQuantizeError(
            "matmuls of float8 with int4 need bfloat16 weights on a GPU of compute capability 8.9 or newer, and it is "
            f"{str(weight.dtype).removeprefix('torch.')} on {describe(weight.device)}"
        )
    if importlib.util.find_spec("mslk") is None:
        raise CannotQuantizeError("matmuls of float8 with int4 need the package mslk, which is not installed")


def has_float8_matmuls(device: torch.device) -> bool:
    """Whether PyTorch has matmuls in float8 on a device: one of CUDA, of compute capability 8.9 or newer."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 9)


def describe(device: torch.device) -> str:
    """A device for messages: its type, for GPUs with the compute capability."""
    if device.type != "cuda":
        return device.type
    return "a GPU of compute capability {}.{}".format(*torch.cuda.get_device_capability(device))


def _has_tinygemm(weight: Tensor) -> bool:
    return (
        weight.device.type == "cuda"
        and torch.version.hip is None
        and weight.dtype is torch.bfloat16
        and torch.cuda.get_device_capability(weight.device) >= (8, 0)
    )
