"""Format numbers for people to read."""

from __future__ import annotations


def bytes_text(number: float) -> str:
    """Return a number of bytes in the largest unit that is not larger: ``1.5 MiB``."""
    size, units = float(number), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.1f} {units[0]}" if units[0] != "bytes" else f"{round(number)} bytes"


def counted(number: int, what: str) -> str:
    """``1 operation``, ``2 operations``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def operations_text(number: float) -> str:
    """Floating-point operations: ``1.5 GFLOP``."""
    for unit, size in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{round(number)} FLOP"


def duration(seconds: float) -> str:
    """A time with three digits: ``1.2 s``, ``34.5 ms``, ``6.1 us``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.3g} us"


def percent(share: float) -> str:
    """A share of a whole: ``12%``; ``<1%`` for less than half of a percent that is not nothing."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"
