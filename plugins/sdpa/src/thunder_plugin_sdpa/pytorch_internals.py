"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Name, PrivateNames

ROWS: Final = (
    Name("torch._scaled_dot_product_attention_math", "attention by its formula"),
    Name("torch.ops.aten._scaled_dot_product_cudnn_attention.default", "cuDNN attention",
        name="aten_cudnn_attention"),
    Name("torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default", "cuDNN attention",
        name="aten_cudnn_attention_backward"),
    Name("torch.ops.aten._scaled_dot_product_efficient_attention.default", "memory-efficient attention",
        name="aten_efficient_attention"),
    Name("torch.ops.aten._scaled_dot_product_efficient_attention_backward.default", "memory-efficient attention",
        name="aten_efficient_attention_backward"),
    Name("torch.ops.aten._scaled_dot_product_flash_attention.default", "flash attention",
        name="aten_flash_attention"),
    Name("torch.ops.aten._scaled_dot_product_flash_attention_backward.default", "flash attention",
        name="aten_flash_attention_backward"),
    Name("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default", "flash attention",
        name="aten_flash_attention_for_cpu"),
    Name("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default", "flash attention",
        name="aten_flash_attention_for_cpu_backward"),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
