"""Numbers of bytes in a configuration: ``500000000``, ``500 MB``, ``22 GiB``."""

from __future__ import annotations

import re
from typing import Any, Final

from thunder.config.entry import refusal
from thunder.config.problems import describe

BYTES: Final = r"^[0-9]+(\.[0-9]+)? ?([kKMGT]i?)?B$"
"""The text of a number of bytes, as a regular expression for JSON schemas, too."""

_PREFIXES: Final = "KMGT"


def read_bytes(value: Any) -> int | None:
    """The number of bytes of an option: a positive int, text such as ``22 GiB``, or None.

    Raises:
        PydanticCustomError: the value is none of these.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, float) and value.is_integer():
        return read_bytes(int(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise refusal(f"must be a number of bytes, such as 500000000 or '22 GiB', not {describe(value)}")
    if value < 1:
        raise refusal(f"must be at least 1, not {value}")
    return value


def _of_text(text: str) -> int:
    found = re.fullmatch(BYTES, text)
    if found is None:
        raise refusal(f"{text!r} is not a number of bytes; write '22 GiB' (2**30 bytes each) or '500 MB' (10**6)")
    number, (prefix, binary, _) = text.rstrip("kKMGTiB "), (found[2] or "").upper().partition("I")
    unit = (1024 if binary else 1000) ** (_PREFIXES.index(prefix) + 1 if prefix else 0)
    size: int = round(float(number) * unit) if "." in number else int(number) * unit
    if size < 1:
        raise refusal(f"{text!r} is less than a byte")
    return size
