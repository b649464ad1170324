"""No test finds what another one compiled."""

from __future__ import annotations

import os

os.environ["THUNDER_CACHE_DIR"] = ""
