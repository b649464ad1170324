"""Makes the modules beside the tests importable; traces are verified, and no test finds what another one compiled."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("THUNDER_VERIFY", "1")
os.environ["THUNDER_CACHE_DIR"] = ""

import torch

torch.set_num_threads(1)
