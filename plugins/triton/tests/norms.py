"""Norms as models write them, and as PyTorch has them."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def lit_gpt(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    dtype, x = x.dtype, x.float() if x.dtype is not torch.float64 else x
    normed = x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)
    return (normed * (weight.float() if dtype is not torch.float64 else weight)).to(dtype=dtype)


def hugging_face(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    dtype = x.dtype
    x = x.to(torch.float32 if dtype is not torch.float64 else dtype)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * x.to(dtype)


def gemma(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float() if x.dtype is not torch.float64 else x
    output = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (output * (1.0 + (weight.float() if x.dtype is not torch.float64 else weight))).type_as(x)


def functional(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, weight.shape, weight)


def without_weight(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), eps=1e-3) + weight


def layer_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, weight.shape, weight, weight)
