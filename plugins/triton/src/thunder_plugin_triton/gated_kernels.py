"""Kernels of gated activations: ``f(gate) * up`` and its derivatives, computed in float32.

``f`` is silu, gelu, or the tanh approximation of gelu (Hendrycks and Gimpel 2016).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.rounding import rounded


@triton.jit
def _activation(x, FUNCTION: tl.constexpr):
    """``f(x)`` and ``f'(x)``."""
    if FUNCTION == "silu":
        part = tl.sigmoid(x)
        slope = part * (1.0 + x * (1.0 - part))
    elif FUNCTION == "gelu":
        part = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        slope = part + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    else:
        inner = 1.5957691216057308 * x * (1.0 + 0.044715 * x * x)  # twice the argument of tanh
        part = tl.sigmoid(inner)  # (1 + tanh(inner / 2)) / 2
        slope = part + part * (1.0 - part) * 1.5957691216057308 * x * (1.0 + 0.134145 * x * x)
    return x * part, slope


@triton.jit
def _place(width, BLOCK: tl.constexpr):
    """The row and the columns of a program; neighboring programs have the same row."""
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    return row, (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def multiply_gated(
    gate, up, output, width, gate_stride, up_stride, FUNCTION: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """``f(gate) * up`` of rows of ``width`` elements; ``output`` is contiguous."""
    row, column = _place(width, BLOCK)
    inside = column < width
    x = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    value, _ = _activation(x, FUNCTION)
    tl.store(output + row * width + column, rounded(value * y, output.dtype.element_ty), mask=inside)


@triton.jit
def gradients_of_gated(
    gate, up, cotangent, of_gate, of_up, width, gate_stride, up_stride, cotangent_stride,
    FUNCTION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of gate and up, contiguous; None for one that is not needed."""
    row, column = _place(width, BLOCK)
    inside = column < width
    x = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(cotangent + row * cotangent_stride + column, mask=inside, other=0.0).to(tl.float32)
    value, slope = _activation(x, FUNCTION)
    if of_gate is not None:
        y = tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(of_gate + row * width + column, rounded(g * y * slope, of_gate.dtype.element_ty), mask=inside)
    if of_up is not None:
        tl.store(of_up + row * width + column, rounded(g * value, of_up.dtype.element_ty), mask=inside)
