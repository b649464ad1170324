"""The hooks of the plugin. Importing this module imports neither PyTorch nor torchao."""

from __future__ import annotations

from thunder_core.plugins import TransformSpec, hookimpl
from thunder_plugin_quantization.options import Float8TrainingOptions, LoraOptions, QuantizationOptions


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Transforms of modules. No preset names them."""
    return [
        TransformSpec(
            "quantization",
            "thunder_plugin_quantization:Quantization.from_options",
            QuantizationOptions,
            "quantizes the weights of linear layers with torchao",
        ),
        TransformSpec(
            "lora",
            "thunder_plugin_quantization:Lora.from_options",
            LoraOptions,
            "freezes a module and adds trainable low-rank adapters to its linear layers",
        ),
        TransformSpec(
            "float8_training",
            "thunder_plugin_quantization:Float8Training.from_options",
            Float8TrainingOptions,
            "trains linear layers with matmuls in float8, by torchao's Float8Linear",
        ),
    ]
