"""Conditions on a call of linear, with reasons for declining it."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_te.options import TeOptions

_DTYPES: Final = (torch.bfloat16, torch.float16)
_STEP: Final = 16  # alignment in bytes of the rows of both operands of an FP8 matmul, transposed or not


def refusal(options: TeOptions, input: TensorProxy, weight: TensorProxy, bias: TensorProxy | None) -> str | None:
    """The reason why Transformer Engine does not run this call; None if it does."""
    tensors = [input, weight] if bias is None else [input, weight, bias]
    return (
        _device_of(tensors, options.recipe)
        or _types(tensors)
        or _shapes(input, weight, bias)
        or _layouts(tensors)
        or _sizes(options, input, weight)
        or _processes(options.recipe)
    )


def _device_of(tensors: list[TensorProxy], recipe: str) -> str | None:
    devices = list(dict.fromkeys(tensor.device for tensor in tensors))
    if len(devices) > 1:
        return f"tensors are on {' and '.join(map(str, devices))}"
    return device_refusal(devices[0], recipe)


@cache
def device_refusal(device: torch.device, recipe: str) -> str | None:
    """The reason why FP8 matmuls do not run on this device."""
    if device.type != "cuda":
        return f"it runs on CUDA devices, and the tensors are on {device.type}"
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 9):
        return f"the GPU has compute capability {_dotted(capability)}, and FP8 needs 8.9"
    if capability >= (10, 0):
        return (
            f"the GPU has compute capability {_dotted(capability)}, whose matmuls need other layouts than those of 9.0"
        )
    if recipe == "block" and capability < (9, 0):
        return f"the GPU has compute capability {_dotted(capability)}, and the recipe 'block' needs 9.0"
    version = tuple([int(part) for part in (torch.version.cuda or "0.0").split(".")[:2]])
    if recipe == "block" and version < (12, 9):
        return f"PyTorch was built for CUDA {_dotted(version)}, and the recipe 'block' needs 12.9"
    return None


def _types(tensors: list[TensorProxy]) -> str | None:
    dtypes = list(dict.fromkeys(tensor.dtype for tensor in tensors))
    if len(dtypes) > 1:
        return f"its tensors have the dtypes {', '.join(map(str, dtypes))}"
    if dtypes[0] not in _DTYPES:
        return f"its tensors are {dtypes[0]}; bfloat16 and float16 are cast to FP8, also under autocast"
    return None


def _shapes(input: TensorProxy, weight: TensorProxy, bias: TensorProxy | None) -> str | None:
    if bias is not None and weight.ndim == 2 and bias.shape != weight.shape[:1]:
        return f"the bias has the shape {tuple(bias.shape)}, and the weight {weight.shape[0]} output features"
    if weight.ndim != 2 or input.ndim < 2:
        return f"input and weight have {input.ndim} and {weight.ndim} dimensions, and at least 2 and 2 are needed"
    sizes: list[Any] = [*input.shape, *weight.shape]
    if not all(isinstance(size, int) for size in sizes):
        return "sizes are not known when the program is compiled"
    for name, size in _named(input, weight):
        if size == 0 or size % _STEP:
            return f"{size} {name} are not a multiple of {_STEP}"
    return None


def _layouts(tensors: list[TensorProxy]) -> str | None:
    for name, tensor in zip(("input", "weight", "bias"), tensors, strict=False):
        if not tensor.contiguous:
            return f"the {name} is not contiguous"
    return None


def _sizes(options: TeOptions, input: TensorProxy, weight: TensorProxy) -> str | None:
    for name, size in _named(input, weight):
        option = "least_tokens" if name == "rows of input" else "least_features"
        if size < getattr(options, option):
            return f"{size} {name} are fewer than {option}={getattr(options, option)}"
    return None


def _processes(recipe: str) -> str | None:
    """Delayed scales would need the amax of all processes."""
    distributed = torch.distributed
    if recipe != "delayed" or not distributed.is_available() or not distributed.is_initialized():
        return None
    count = distributed.get_world_size()
    several = f"there are {count} processes, and the recipe 'delayed' is for one; use 'current' or 'block'"
    return several if count > 1 else None


def _named(input: TensorProxy, weight: TensorProxy) -> tuple[tuple[str, int], ...]:
    rows: int = prod(input.shape[:-1])  # type: ignore[arg-type]
    outputs, inputs = weight.shape
    return (("rows of input", rows), ("input features", inputs), ("output features", outputs))  # type: ignore[return-value]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
