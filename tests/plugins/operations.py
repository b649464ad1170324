"""Operations as authors of plugins define them."""

from __future__ import annotations

import torch

from thunder_core.symbols import recorded


@recorded
def rms_norm(x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-5) -> torch.Tensor:
    """Divides by the root of the mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@recorded
def sine_and_cosine(x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return x.sin(), {"cosine": x.cos()}


@recorded
def double_(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2)


@recorded
def shifted_noise(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(x.shape)


@recorded
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@recorded
def projection(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).exp() + x.exp().sum()


def plain(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def launch(x: torch.Tensor) -> torch.Tensor:
    """A function that ends in no torch function."""
    raise RuntimeError(f"a kernel is launched on {x.shape}")
