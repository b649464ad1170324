"""The forms in which models write composites, with a file for each area.

To add a form, write it as a function of the composite's parameters and add a row for it. If two rows match, the first
is used, so longer ones precede shorter ones.
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
