"""Quantized weights, low-rank adapters and float8 training. Names are imported on first use.

- `formats`: what torchao has for each kind of weights, activations and device, and what it requires.
- `layers`: selection of linear layers; `structure`: copies of modules that share tensors.
- `quantization`, `lora` and `float8_training`: the transforms, and the functions for eager modules.
- `adapters`: adapters in files, in the format of peft, and their merge into the weights.
- `changes`: what a transform did to a module, for the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_quantization.adapters import load_lora, lora_state_dict, merge_lora, save_lora
    from thunder_plugin_quantization.float8_training import Float8Training
    from thunder_plugin_quantization.lora import Lora, LoraLinear, add_lora
    from thunder_plugin_quantization.quantization import Quantization, quantize

__all__ = [
    "Float8Training",
    "Lora",
    "LoraLinear",
    "Quantization",
    "add_lora",
    "load_lora",
    "lora_state_dict",
    "merge_lora",
    "quantize",
    "save_lora",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "Float8Training": "float8_training",
        "Lora": "lora",
        "LoraLinear": "lora",
        "Quantization": "quantization",
        "add_lora": "lora",
        "load_lora": "adapters",
        "lora_state_dict": "adapters",
        "merge_lora": "adapters",
        "quantize": "quantization",
        "save_lora": "adapters",
    },
)
