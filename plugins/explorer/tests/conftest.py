"""Settings for all tests of the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("THUNDER_VERIFY", "1")  # every trace is checked after each transform
sys.path.insert(0, str(Path(__file__).parent))

import torch

torch.set_num_threads(1)
