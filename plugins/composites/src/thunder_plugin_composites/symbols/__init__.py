"""The composites, their rows, and the patterns in which models write them.

Importing this module adds the rows to the registry of symbols and the patterns to the pattern table. An executor that
claims a composite, and a saved trace that calls one, import it, so that its symbol exists.
"""

from thunder_core.symbols.registry import registry
from thunder_plugin_composites.recognition import add_patterns
from thunder_plugin_composites.symbols.attention import rotary_embedding, scaled_softmax
from thunder_plugin_composites.symbols.gating import geglu, swiglu
from thunder_plugin_composites.symbols.loss import linear_cross_entropy, upcast_cross_entropy
from thunder_plugin_composites.symbols.normalization import rms_norm
from thunder_plugin_composites.symbols.patterns import PATTERNS
from thunder_plugin_composites.symbols.rows import ROWS

__all__ = [
    "PATTERNS",
    "ROWS",
    "geglu",
    "linear_cross_entropy",
    "rms_norm",
    "rotary_embedding",
    "scaled_softmax",
    "swiglu",
    "upcast_cross_entropy",
]

registry.extend(ROWS)
add_patterns(PATTERNS)
