"""The part of Transformer Engine 2.20 that the plugin uses, in PyTorch on a CPU, for tests.

What it keeps of the real library, from its sources: names and parameters (``signatures.json``, which a test compares
with this file, and on a GPU with the library); tensors of bytes and scales, their shapes; that products on Hopper read
both operands along rows, so that transposed copies must be there; the arithmetic of scales; that delayed scales are
rotated in place. What it does not keep: streams, speed, rounding of sums. `CALLS` has the names of what was called.
"""

from __future__ import annotations

import enum
import importlib.util
import sys
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

REAL = importlib.util.find_spec("transformer_engine") is not None
"""Whether the library itself is installed."""
CALLS: list[str] = []


class DType(enum.IntEnum):
    kFloat8E4M3 = 7
    kFloat8E5M2 = 8


TORCH = {DType.kFloat8E4M3: torch.float8_e4m3fn, DType.kFloat8E5M2: torch.float8_e5m2}


class Quantizer:
    def __init__(self, *, rowwise: bool, columnwise: bool) -> None:
        self.rowwise_usage, self.columnwise_usage = rowwise, columnwise
        self.internal = False


class Float8Quantizer(Quantizer):
    def __init__(self, scale: Any, amax: Any, fp8_dtype: Any, *, rowwise: Any = True, columnwise: Any = True) -> None:
        super().__init__(rowwise=rowwise, columnwise=columnwise)
        assert scale.dtype == amax.dtype == torch.float32
        assert amax.shape == (1,)
        self.scale, self.amax, self.dtype = scale, amax, fp8_dtype


class Float8CurrentScalingQuantizer(Quantizer):
    def __init__(
        self, fp8_dtype: Any, device: Any, *, rowwise: Any = True, columnwise: Any = True,
        use_existing_amax: Any = False, with_amax_reduction: Any = False, amax_reduction_group: Any = None,
        force_pow_2_scales: Any = False, amax_epsilon: Any = 0.0, scale: Any = None, amax: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(rowwise=rowwise, columnwise=columnwise)
        assert not any((use_existing_amax, with_amax_reduction, force_pow_2_scales, amax_epsilon))
        self.dtype = fp8_dtype


class Float8BlockQuantizer(Quantizer):
    def __init__(
        self, fp8_dtype: Any, *, rowwise: Any, columnwise: Any, amax_epsilon: Any = 0.0,
        force_pow_2_scales: Any = True, block_scaling_dim: Any = 2,
    ) -> None:  # fmt: skip
        super().__init__(rowwise=rowwise, columnwise=columnwise)
        assert force_pow_2_scales
        self.dtype, self.block_scaling_dim = fp8_dtype, block_scaling_dim


class Float8TensorStorage:
    def __new__(
        cls, *args: Any, data: Any, fp8_scale_inv: Any, fp8_dtype: Any, fake_dtype: Any = None,
        data_transpose: Any = None, quantizer: Any = None, transpose_invalid: Any = None, **kwargs: Any,
    ) -> Float8TensorStorage:  # fmt: skip
        own = object.__new__(cls)
        own._data, own._transpose, own._scale_inv, own._fp8_dtype = data, data_transpose, fp8_scale_inv, fp8_dtype
        return own

    def values(self, rowwise: bool) -> Tensor:
        bytes_ = self._data if rowwise else self._transpose
        values = bytes_.view(TORCH[self._fp8_dtype]).float() * self._scale_inv
        return values if rowwise else values.t()


class Float8BlockwiseQTensorStorage:
    def __new__(
        cls, rowwise_data: Any, rowwise_scale_inv: Any, columnwise_data: Any, columnwise_scale_inv: Any,
        fp8_dtype: Any, quantizer: Any, is_2D_scaled: Any, *args: Any, fake_dtype: Any = None, **kwargs: Any,
    ) -> Float8BlockwiseQTensorStorage:  # fmt: skip
        own = object.__new__(cls)
        own._rowwise_data, own._rowwise_scale_inv = rowwise_data, rowwise_scale_inv
        own._columnwise_data, own._columnwise_scale_inv = columnwise_data, columnwise_scale_inv
        own._fp8_dtype, own._is_2D_scaled = fp8_dtype, is_2D_scaled
        return own

    def values(self, rowwise: bool) -> Tensor:
        data = self._rowwise_data if rowwise else self._columnwise_data
        inverse = self._rowwise_scale_inv if rowwise else self._columnwise_scale_inv
        values = data.view(TORCH[self._fp8_dtype]).float()
        for (i, j), (rows, columns) in _blocks(data, self._is_2D_scaled):
            values[rows, columns] *= inverse[i, j] if self._is_2D_scaled else inverse[j, i]
        return values if rowwise else values.t()


def quantize(tensor: Tensor, quantizer: Any, output: Any = None, noop: Any = None) -> Any:
    """``transformer_engine_torch.quantize``."""
    kind = type(quantizer)
    CALLS.append(f"quantize {kind.__name__}")
    assert output is None
    assert noop is None
    assert quantizer.internal
    assert quantizer.rowwise_usage
    assert tensor.ndim == 2
    assert tensor.is_contiguous()
    values, dtype = tensor.detach().float(), TORCH[quantizer.dtype]
    if kind is Float8BlockQuantizer:
        square = quantizer.block_scaling_dim == 2
        rows = _in_blocks(values, square, dtype)
        columns = _in_blocks(values.t(), square, dtype) if quantizer.columnwise_usage else (None, None)
        return Float8BlockwiseQTensorStorage(*rows, *columns, quantizer.dtype, quantizer, square)
    if kind is Float8Quantizer:
        scale = quantizer.scale.reshape(())
        quantizer.amax.copy_(torch.maximum(quantizer.amax, values.abs().max()))
    else:
        scale = _scale(values.abs().max(), dtype)
    data = _cast(values * scale, dtype)
    transposed = data.t().contiguous() if quantizer.columnwise_usage else None
    return Float8TensorStorage(
        data=data, fp8_scale_inv=(1 / scale).reshape(1), fp8_dtype=quantizer.dtype, data_transpose=transposed
    )


def general_gemm(
    A: Any, B: Any, out_dtype: Any = None, quantization_params: Any = None, gelu: Any = False, gelu_in: Any = None,
    alpha: Any = 1.0, beta: Any = None, accumulate: Any = False, layout: Any = "TN", out: Any = None, bias: Any = None,
    use_split_accumulator: Any = False, grad: Any = False, ub: Any = None, ub_type: Any = None,
    extra_output: Any = None, bulk_overlap: Any = False,
) -> tuple[Tensor, None, None, None]:  # fmt: skip
    """``D = B' A'``, of matrices in the order of rows; see ``getGemmOutputShape`` in ``csrc/extensions/gemm.cpp``."""
    CALLS.append(f"gemm {layout}{' split' if use_split_accumulator else ''}")
    a, b = A.values(rowwise=layout[0] == "T"), B.values(rowwise=layout[1] == "N")
    assert all(size % 16 == 0 for size in (*a.shape, *b.shape))
    if isinstance(A, Float8BlockwiseQTensorStorage):
        assert use_split_accumulator
        assert not (A._is_2D_scaled and B._is_2D_scaled)
    result = (b.t() if layout[1] == "T" else b) @ (a.t() if layout[0] == "T" else a)
    return (result if bias is None else result + bias.float()).to(out_dtype), None, None, None


def fused_amax_and_scale_update_after_reduction(*args: Any) -> None:
    """The formulas of ``_amax_and_scale_update`` in ``pytorch/quantization.py``, for several layers."""
    latest, histories, scales, algorithm, fp8_dtype, margin = args
    CALLS.append(f"update {len(scales)}")
    for history, scale, amax in zip(histories, scales, latest.split([len(one) for one in scales]), strict=True):
        history[0] = torch.where(amax > 0, amax, history[0])
        largest = history.max(0).values if algorithm == "max" else history[0].clone()
        history.copy_(history.roll(-1, 0))
        history[0] = 0
        for i, value in enumerate(largest):
            if 0 < value < torch.inf:
                scale[i] = torch.finfo(TORCH[fp8_dtype]).max / value / 2**margin


def _scale(amax: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.finfo(dtype).max / amax if 0 < amax < torch.inf else torch.ones(())


def _cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    largest = torch.finfo(dtype).max
    return values.clamp(-largest, largest).to(dtype).view(torch.uint8)


def _blocks(matrix: Tensor, square: bool) -> Any:
    """Numbers and ranges of the blocks."""
    high = 128 if square else 1
    for top in range(0, matrix.shape[0], high):
        for left in range(0, matrix.shape[1], 128):
            yield (top // high, left // 128), (slice(top, top + high), slice(left, left + 128))


def _in_blocks(values: Tensor, square: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    height, width = values.shape
    down, along = -(-height // (128 if square else 1)), -(-width // 128)
    inverse = torch.zeros((down, -(-along // 4) * 4) if square else (along, -(-down // 4) * 4))
    data = torch.empty(height, width, dtype=torch.uint8)
    for (i, j), (rows, columns) in _blocks(values, square):
        scale = _scale(values[rows, columns].abs().max(), dtype).log2().floor().exp2()
        data[rows, columns] = _cast(values[rows, columns] * scale, dtype)
        inverse[(i, j) if square else (j, i)] = 1 / scale
    return data, inverse


def install() -> None:
    """Make the modules importable."""
    top, pytorch = ModuleType("transformer_engine"), ModuleType("transformer_engine.pytorch")
    extensions = ModuleType(f"{pytorch.__name__}.cpp_extensions")
    compiled = ModuleType("transformer_engine_torch")
    top.pytorch = pytorch
    classes = (Float8Quantizer, Float8CurrentScalingQuantizer, Float8BlockQuantizer, Float8TensorStorage)
    for kind in (*classes, Float8BlockwiseQTensorStorage):
        setattr(pytorch, kind.__name__, kind)
    pytorch.DType = DType
    extensions.general_gemm = general_gemm
    for function in (quantize, fused_amax_and_scale_update_after_reduction):
        setattr(compiled, function.__name__, function)
    for module in (top, pytorch, extensions, compiled):
        sys.modules[module.__name__] = module
