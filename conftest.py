"""Settings for all tests, those of plugins too: fixed seeds, and Triton's interpreter where there is no GPU.

Triton decides it when it is imported, which modules of other tests do: so before any of them is.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
