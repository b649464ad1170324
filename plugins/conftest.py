"""Kernels in Triton run in its interpreter where there is no GPU.

Triton decides it when it is imported, which modules of other tests do: so before any of them is.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
