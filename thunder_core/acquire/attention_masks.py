"""Masks that attention refuses, although fake tensors take them.

PyTorch's formula of attention adds the mask to the scores in place, so that these keep their shape; fake tensors are
added out of place, and the mask broadcasts the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F


def _check(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *args: Any,
    enable_gqa: bool = False,
    **kwargs: Any,
) -> None:
    if attn_mask is None:
        return
    batch = query.shape[:-2] if enable_gqa else torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    scores = torch.Size((*batch, query.shape[-2], key.shape[-2]))
    shape = torch.broadcast_shapes(scores, attn_mask.shape)
    if shape != scores:
        raise RuntimeError(f"output with shape {list(scores)} doesn't match the broadcast shape {list(shape)}")


MASK_CHECKS: Final[dict[Any, Callable[..., None]]] = {F.scaled_dot_product_attention: _check}
"""By function, what raises RuntimeError for a mask that it refuses; called with its arguments after it took fakes."""
