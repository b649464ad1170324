"""How models spell composites out, by area, one file each.

To add a spelling, write it as a function of the composite's parameters and give it a row. Of two rows that fit, the
first is taken; so the longer one stands before the shorter.
"""

from thunder_plugin_composites.symbols.patterns import (
    autocast_losses,
    gating,
    losses,
    normalization,
    rotary,
    softmax,
)

PATTERNS = (
    *losses.PATTERNS,
    *autocast_losses.PATTERNS,
    *normalization.PATTERNS,
    *rotary.PATTERNS,
    *gating.PATTERNS,
    *softmax.PATTERNS,
)
