"""The UNet of Stable Diffusion from diffusers, as ``diffusers:unet``, with random weights."""

from __future__ import annotations

import inspect
from typing import Any

from benchmarks.models.model import BenchmarkModel, Features, Integers, native_settings, require

PREFIX = "diffusers:"
NAME = "diffusers:unet"
STEPS = 1000
"""Number of noise levels."""
PROMPT = 77
"""Number of tokens of the encoded prompt."""
SAMPLE = 64
"""Height and width of a latent image by default."""


def accepted() -> list[str]:
    """The name of the model."""
    return [NAME]


def require_packages(name: str) -> None:
    """Raise `MissingPackage` if diffusers is not installed."""
    require("diffusers", name)


def has_sequences(name: str) -> bool:
    """It has none: latent images have the size that is a setting of the model."""
    return False


def settings(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The parameters of ``UNet2DConditionModel`` with their defaults; an empty dict: it has no other names for them."""
    from diffusers import UNet2DConditionModel

    parameters = inspect.signature(UNet2DConditionModel.__init__).parameters
    defaults = {name: one.default for name, one in parameters.items() if one.default is not inspect.Parameter.empty}
    return defaults | {"sample_size": SAMPLE}, {}


def make(name: str, overrides: dict[str, Any]) -> BenchmarkModel:
    """The model on the default device: it predicts the noise of latent images, given noise levels and a prompt."""
    from diffusers import UNet2DConditionModel

    defaults, words = settings(name)
    chosen = {"sample_size": SAMPLE} | native_settings(overrides, words, defaults, name)
    module = UNet2DConditionModel(**chosen)
    size, width = chosen["sample_size"], module.config.cross_attention_dim
    more = {"timestep": Integers(STEPS), "encoder_hidden_states": Features((PROMPT, width))}
    return BenchmarkModel(module, 0, Features((module.config.in_channels, size, size)), more)
