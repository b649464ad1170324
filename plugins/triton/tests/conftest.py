"""No test finds what another process timed; and, as in the `conftest.py` above, the interpreter without a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

os.environ["THUNDER_CACHE_DIR"] = ""
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode leaves the folder of tests out
