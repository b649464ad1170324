"""Normalizations over the last dimension. Sizes are rows and columns."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.operators.case import Case, NotAvailable, Problem, normal

EPSILON = 1e-5
CUDA = ((8192, 2048), (16384, 4096))
CPU = ((64, 256),)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, weight.shape, weight, EPSILON)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, weight.shape, weight, bias, EPSILON)


def _residual(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return _rms_norm(total, weight), total


def _weight(dtype: torch.dtype, columns: int) -> torch.Tensor:
    return (1 + 0.1 * torch.randn(columns)).to(dtype).requires_grad_()


def rms_norm(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """PyTorch's function."""
    arguments = (normal(rows, columns, dtype=dtype), _weight(dtype, columns))
    return Problem(_rms_norm, arguments, liger=lambda f, x, weight: f.liger_rms_norm(x, weight, EPSILON))


def rms_norm_of_lit_gpt(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """LitGPT's module, which computes in float32 and multiplies by the weight before rounding."""
    from benchmarks.models.lit_gpt import gpt_and_config

    try:
        gpt_and_config()
    except ModuleNotFoundError as error:
        raise NotAvailable(str(error)) from error
    from litgpt.model import RMSNorm

    module: Any = RMSNorm(columns, eps=EPSILON).to(dtype)
    module.weight.data.copy_(_weight(dtype, columns).detach())
    kernel = lambda f, x, weight: f.liger_rms_norm(x, weight, EPSILON, 0.0, "gemma")  # noqa: E731
    return Problem(module, (normal(rows, columns, dtype=dtype),), exact=_rms_norm, liger=kernel)


def rms_norm_of_hugging_face(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """The module of Hugging Face's Llama, which rounds before multiplying by the weight."""
    try:
        from transformers.models.llama.modeling_llama import LlamaRMSNorm
    except ImportError as error:
        raise NotAvailable("transformers is not installed") from error
    module: Any = LlamaRMSNorm(columns, eps=EPSILON).to(dtype)
    module.weight.data.copy_(_weight(dtype, columns).detach())
    kernel = lambda f, x, weight: f.liger_rms_norm(x, weight, EPSILON)  # noqa: E731
    return Problem(module, (normal(rows, columns, dtype=dtype),), exact=_rms_norm, liger=kernel)


def layer_norm(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """PyTorch's function, with weight and bias."""
    arguments = (normal(rows, columns, dtype=dtype), _weight(dtype, columns), normal(columns, dtype=dtype))
    return Problem(
        _layer_norm, arguments, liger=lambda f, x, weight, bias: f.liger_layer_norm(x, weight, bias, EPSILON)
    )


def residual_rms_norm(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """The norm of a sum, which is also returned as the next residual of a transformer."""
    # Both terms have the same gradient, so one of them requires grad. Backward reads the sum, which has the same size.
    x, residual = normal(rows, columns, dtype=dtype), normal(rows, columns, dtype=dtype, gradient=False)
    kernel = lambda f, *arguments: f.liger_fused_add_rms_norm(*arguments, EPSILON)  # noqa: E731
    return Problem(_residual, (x, residual, _weight(dtype, columns)), liger=kernel)


CASES = (
    Case("rms_norm", "F.rms_norm", rms_norm, CUDA, CPU),
    Case("rms_norm", "LitGPT's RMSNorm", rms_norm_of_lit_gpt, CUDA, CPU),
    Case("rms_norm", "Hugging Face's LlamaRMSNorm", rms_norm_of_hugging_face, CUDA[:1], CPU),
    Case("layer_norm", "F.layer_norm", layer_norm, CUDA, CPU),
    Case("residual_rms_norm", "sum, then F.rms_norm", residual_rms_norm, CUDA, CPU),
)
