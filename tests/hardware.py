"""What kernels of the machine's processor lack."""

from __future__ import annotations

import functools

import torch


@functools.cache
def runs_lstm(dtype: torch.dtype) -> bool:
    """Whether oneDNN has an LSTM of that dtype for this processor: bfloat16 takes AVX-512, half has none."""
    with torch.autocast("cpu", dtype=dtype):
        try:
            torch.nn.LSTM(2, 2)(torch.ones(1, 1, 2))
        except RuntimeError as error:
            if "primitive descriptor" not in str(error):
                raise
            return False
    return True
