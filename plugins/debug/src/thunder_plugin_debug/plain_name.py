"""Names of this package's functions in traces."""

from __future__ import annotations

import re


def plain_name(name: str) -> str:
    """The dotted name of a symbol as a Python identifier."""
    return re.sub(r"\W", "_", name)
