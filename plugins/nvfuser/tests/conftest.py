"""Makes ``fake_nvfuser`` importable: pytest's import mode leaves the folder of tests out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["THUNDER_CACHE_DIR"] = ""  # no test finds what another one kept
