"""The private names of PyTorch that this plugin uses: what for."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import PrivateNames, Row

ROWS: Final = (
    Row("torch._scaled_dot_product_attention_math", "attention by its formula"),
    Row("torch.ops.aten._scaled_dot_product_cudnn_attention.default", "cuDNN attention",
        name="aten_cudnn_attention"),
    Row("torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default", "cuDNN attention",
        name="aten_cudnn_attention_backward"),
    Row("torch.ops.aten._scaled_dot_product_efficient_attention.default", "memory-efficient attention",
        name="aten_efficient_attention"),
    Row("torch.ops.aten._scaled_dot_product_efficient_attention_backward.default", "memory-efficient attention",
        name="aten_efficient_attention_backward"),
    Row("torch.ops.aten._scaled_dot_product_flash_attention.default", "flash attention",
        name="aten_flash_attention"),
    Row("torch.ops.aten._scaled_dot_product_flash_attention_backward.default", "flash attention",
        name="aten_flash_attention_backward"),
    Row("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default", "flash attention",
        name="aten_flash_attention_for_cpu"),
    Row("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default", "flash attention",
        name="aten_flash_attention_for_cpu_backward"),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
