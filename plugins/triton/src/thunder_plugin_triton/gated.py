"""Gated activations: SwiGLU and GeGLU. Backward recomputes the activation."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton import gated_kernels as kernels
from thunder_plugin_triton.options import TritonOptions
from thunder_plugin_triton.rows import with_row_stride
from thunder_plugin_triton.tuning import Configuration, Tunable, rows_bucket


def _candidates(bucket: int) -> list[Configuration]:
    return [{"BLOCK": block, "num_warps": warps} for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))]


_FORWARD: Final = Tunable("gated", _candidates)
_BACKWARD: Final = Tunable("gated backward", _candidates)
_FUNCTIONS: Final = {"none": "gelu", "tanh": "gelu_tanh"}


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up``."""
    return _multiply(gate, up, "silu")


def swiglu_forward(gate: Tensor, up: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
    """`swiglu`, and its arguments as residuals."""
    return _multiply(gate, up, "silu"), (gate, up, "silu")


def swiglu_fake(gate: Tensor, up: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `swiglu_forward`."""
    return gate.new_empty(gate.shape), (gate, up, "silu")


def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """``gelu(gate) * up``."""
    return _multiply(gate, up, _FUNCTIONS[approximate])


def geglu_forward(gate: Tensor, up: Tensor, approximate: str = "none") -> tuple[Tensor, tuple[Any, ...]]:
    """`geglu`, and its arguments as residuals."""
    return geglu(gate, up, approximate), (gate, up, _FUNCTIONS[approximate])


def geglu_fake(gate: Tensor, up: Tensor, approximate: str = "none") -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `geglu_forward`."""
    return gate.new_empty(gate.shape), (gate, up, _FUNCTIONS[approximate])


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of gate and up, contiguous."""
    gate, up, function = residuals
    gradients_ = [gate.new_empty(gate.shape) if want else None for want in wanted]
    width = _width(gate, up, cotangents[0])
    rows = [with_row_stride(tensor, width) for tensor in (gate, up, cotangents[0])]

    def launch(chosen: Configuration) -> None:
        programs = gate.numel() // width * -(-width // chosen["BLOCK"])
        kernels.gradients_of_gated[(programs,)](
            *[tensor for tensor, _ in rows],
            *gradients_,
            width,
            *[step for _, step in rows],
            FUNCTION=function,
            **chosen,
        )

    if gate.numel():
        _BACKWARD.run(gate.device, (rows_bucket(gate.numel()),), launch)
    return tuple(gradients_)


def _multiply(gate: Tensor, up: Tensor, function: str) -> Tensor:
    output = gate.new_empty(gate.shape)
    width = _width(gate, up)
    rows = [with_row_stride(tensor, width) for tensor in (gate, up)]

    def launch(chosen: Configuration) -> None:
        programs = gate.numel() // width * -(-width // chosen["BLOCK"])
        kernels.multiply_gated[(programs,)](
            *[tensor for tensor, _ in rows], output, width, *[step for _, step in rows], FUNCTION=function, **chosen
        )

    if gate.numel():
        _FORWARD.run(gate.device, (rows_bucket(gate.numel()),), launch)
    return output


def _width(*tensors: Tensor) -> int:
    """The width of rows: that of a single row of all elements if all tensors are contiguous."""
    first = tensors[0]
    return first.numel() if all(tensor.is_contiguous() for tensor in tensors) else first.shape[-1]


def check(gate: TensorProxy, up: TensorProxy, approximate: Any = "none") -> bool | str:
    """The reason for declining a call, or True."""
    reason = need.tensors(gate=gate, up=up)
    if reason is not None:
        return reason
    if gate.shape != up.shape or gate.ndim == 0:
        return f"gate and up have the shapes {list(gate.shape)} and {list(up.shape)}"
    if gate.dtype is not up.dtype:
        return f"gate is {gate.dtype} and up {up.dtype}"
    if approximate not in _FUNCTIONS:
        return f"approximate={approximate!r} is unknown"
    return need.rows(gate) or need.rows(up) or True


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The claims of both composites."""
    return (
        Claim(
            composites.swiglu, swiglu, check, DerivativePair(swiglu_forward, backward, swiglu_fake), variant="elements"
        ),
        Claim(composites.geglu, geglu, check, DerivativePair(geglu_forward, backward, geglu_fake), variant="elements"),
    )
