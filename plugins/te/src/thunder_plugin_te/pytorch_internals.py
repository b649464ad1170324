"""The private names of PyTorch and Transformer Engine that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

_PARTS: Final = {
    "Float8TensorStorage": ("_data", "_scale_inv", "_transpose"),
    "Float8BlockwiseQTensorStorage": (
        "_rowwise_data", "_rowwise_scale_inv", "_columnwise_data", "_columnwise_scale_inv",
    ),
}  # fmt: skip

ROWS: Final = (
    Name("torch._C._current_graph_task_id", "delayed scaling in backward"),
    *[Name(f"transformer_engine.pytorch.{kind}.{name}", "the bytes and scales of quantized tensors",
           kind=Kind.NAME_ONLY)
      for kind, names in _PARTS.items() for name in names],
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
