"""Operations that models write as several torch functions, and for which executors have a single kernel.

Each is a plain function, and a symbol that executors claim like any torch function::

    import thunder_plugin_composites as composites

    Claim(composites.rms_norm, check=..., run=..., derivative=...)

Programs that write it out are then recognized. A call of such a function records its parts, which are recognized like
all others. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_composites.symbols import (
        geglu,
        linear_cross_entropy,
        rms_norm,
        rotary_embedding,
        scaled_softmax,
        swiglu,
        upcast_cross_entropy,
    )

__all__ = [
    "geglu",
    "linear_cross_entropy",
    "rms_norm",
    "rotary_embedding",
    "scaled_softmax",
    "swiglu",
    "upcast_cross_entropy",
]

__getattr__ = lazy_imports(__name__, dict.fromkeys(__all__, "symbols"))
