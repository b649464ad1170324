"""Composites: operations that models spell out in several torch functions and that executors have one kernel for.

Each is a plain function and a symbol, which executors claim as they claim any torch function::

    from thunder_core.symbols import composites

    Claim(composites.rms_norm, check=..., run=..., derivative=...)

`thunder_core.passes.patterns` finds them in programs. A function that calls one records its parts, and these are found
like any others. The tables give them their symbols (`thunder_core/symbols/tables/composites.py`).
"""

from thunder_core.symbols.composites.attention import rotary_embedding, scaled_softmax
from thunder_core.symbols.composites.gating import geglu, swiglu
from thunder_core.symbols.composites.loss import linear_cross_entropy, upcast_cross_entropy
from thunder_core.symbols.composites.normalization import rms_norm

__all__ = [
    "geglu",
    "linear_cross_entropy",
    "rms_norm",
    "rotary_embedding",
    "scaled_softmax",
    "swiglu",
    "upcast_cross_entropy",
]
