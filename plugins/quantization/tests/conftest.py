"""Settings for all tests of the package."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("THUNDER_VERIFY", "1")  # every trace is checked after each transform
sys.path.insert(0, str(Path(__file__).parent))

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torchao about its own kernels
    try:
        import torchao.quantization  # noqa: F401
    except ImportError:
        collect_ignore_glob = ["test_[!p]*.py"]

torch.set_num_threads(1)
