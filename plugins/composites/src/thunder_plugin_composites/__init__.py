"""Operations that models spell out in several torch functions, and that executors have one kernel for.

Each is a plain function, and a symbol that executors claim as they claim any torch function::

    import thunder_plugin_composites as composites

    Claim(composites.rms_norm, check=..., run=..., derivative=...)

Programs that spell it out are then recognized. A function that calls one records its parts, and these are recognized
like any others. What is here is imported when it is first used.
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
