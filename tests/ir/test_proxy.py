"""The metadata of proxies equals that of the tensors that they represent."""

from __future__ import annotations

import pytest
import torch

from thunder_core.ir.proxy import TensorProxy


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 3, 1), (0, 3), (2, 1, 4), (3, 0)], ids=str)
@pytest.mark.parametrize("change", ["none", "transpose", "slice", "expand"])
def test_contiguous_is_what_pytorch_says(shape: tuple[int, ...], change: str) -> None:
    tensor = torch.empty(shape)
    if change == "transpose" and tensor.ndim > 1:
        tensor = tensor.transpose(0, -1)
    elif change == "slice" and tensor.ndim:
        tensor = tensor[..., ::2]
    elif change == "expand":
        tensor = torch.empty((2, *shape))[:1].expand(2, *shape)
    proxy = TensorProxy("t", tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, False, 0)
    assert proxy.contiguous == tensor.is_contiguous()
