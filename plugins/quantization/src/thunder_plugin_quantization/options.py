"""The options of the transforms in configurations."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from thunder_core.plugins import TransformOptions
from thunder_plugin_quantization.combinations import Activations, Weights, check_combination

Recipe = Literal["tensorwise", "rowwise", "rowwise_with_gw_hp"]


class LayerOptions(TransformOptions):
    """Options of all transforms of this package."""

    exclude: tuple[str, ...] = ("lm_head",)
    """Patterns (`*`, `?`) of layers, or of modules that contain them, to leave as they are. A pattern is compared with
    whole components of a name: `lm_head` matches `model.lm_head`, `layers.0` all layers of that module.
    """
    in_place: bool = False
    """Change the given module itself. Otherwise a copy of it is changed and compiled, which shares all tensors that
    stay as they are.
    """


class QuantizationOptions(LayerOptions):
    """Options of ``quantization``."""

    weights: Weights = "int8"
    """What weights are quantized to."""
    activations: Activations | None = None
    """What the input of each layer is quantized to, in each call, so that the matmul has eight bits: `int8` for `int8`
    and `int4` weights, `float8` for `float8` and `int4` weights.
    """
    group_size: PositiveInt | None = None
    """Number of neighboring weights of a row with one scale. None: a row for `int8` and `float8`, the largest of 128,
    64 and 32 that divides a row for `int4`, and 64 for `nf4`.
    """
    differentiable: bool = False
    """Use only kernels through which gradients pass to the input of a layer, for the training of adapters."""

    @model_validator(mode="after")
    def _combination(self) -> Self:
        check_combination(self.weights, self.activations, self.group_size, self.differentiable)
        return self


class LoraOptions(LayerOptions):
    """Options of ``lora``."""

    r: PositiveInt = 8
    """Rank of the adapters."""
    lora_alpha: float = Field(default=8.0, gt=0)
    """The adapter's result is multiplied by `lora_alpha / r`."""
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Patterns of the layers that get an adapter, compared as those of `exclude`. `all-linear`: every linear layer."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability of dropout for the input of adapters in training mode."""
    use_rslora: bool = False
    """Multiply by `lora_alpha / sqrt(r)` instead."""


class Float8TrainingOptions(LayerOptions):
    """Options of ``float8_training``."""

    recipe: Recipe = "tensorwise"
    """torchao's recipe of scales: of a tensor, of rows and columns, or of rows with the gradient of weights in the
    dtype of the weights.
    """
    emulate: bool = False
    """Round to float8, and compute matmuls in the dtype of the weights, on any device: slower, to try out the effect.
    """
