"""torchao. Its modules warn, when they are imported, of PyTorch's functions that they use."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao import quantization
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    from torchao.quantization import (
        Float8Tensor,
        Int4TilePackedTo4dTensor,
        Int8Tensor,
        IntxUnpackedToInt8Tensor,
        NF4Tensor,
    )
    from torchao.quantization.quantize_.workflows import Int4PackingFormat

__all__ = [
    "Float8LinearConfig",
    "Float8Tensor",
    "Int4PackingFormat",
    "Int4TilePackedTo4dTensor",
    "Int8Tensor",
    "IntxUnpackedToInt8Tensor",
    "NF4Tensor",
    "convert_to_float8_training",
    "quantization",
]
