"""The private names of PyTorch and Transformer Engine that this plugin uses: what for."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, PrivateNames, Row

_PARTS: Final = {
    "Float8TensorStorage": ("_data", "_scale_inv", "_transpose"),
    "Float8BlockwiseQTensorStorage": (
        "_rowwise_data", "_rowwise_scale_inv", "_columnwise_data", "_columnwise_scale_inv",
    ),
}  # fmt: skip

ROWS: Final = (
    Row("torch._C._current_graph_task_id", "delayed scaling in backward"),
    *[Row(f"transformer_engine.pytorch.{kind}.{name}", "the bytes and scales of quantized tensors", kind=Kind.SPELLED)
      for kind, names in _PARTS.items() for name in names],
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
