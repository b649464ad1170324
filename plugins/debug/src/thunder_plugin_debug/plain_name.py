"""Names that functions of ours are printed by."""

from __future__ import annotations

import re


def plain_name(name: str) -> str:
    """The dotted name of a symbol as one Python name."""
    return re.sub(r"\W", "_", name)
