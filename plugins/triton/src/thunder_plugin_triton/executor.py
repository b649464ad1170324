"""The executor: a table of kernels in families.

A family is a module with a function ``claims(options)``, which returns a tuple of `Claim`s; `FAMILIES` lists them.
Their functions are at the top level of the module, so that traces print them by name. They launch kernels through
`thunder_plugin_triton.tuning.Tunable`, which chooses block sizes. ``autotune: false`` is applied here to all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_plugin_triton import (
    compiler_hash,
    cross_entropy,
    gated,
    layer_norm,
    linear_cross_entropy_claims,
    rms_norm,
    rotary,
    softmax,
    upcast_cross_entropy,
)
from thunder_plugin_triton.options import TritonOptions
from thunder_plugin_triton.tuning import fixed_choice

FAMILIES: Final = (
    rms_norm,
    layer_norm,
    softmax,
    cross_entropy,
    upcast_cross_entropy,
    linear_cross_entropy_claims,
    rotary,
    gated,
)


@dataclass(frozen=True, slots=True)
class WithFixedChoice:
    """A function whose kernels are not tuned."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with block sizes from the table."""
        with fixed_choice():
            return self.function(*args, **kwargs)


def _fixed(claim: Claim) -> Claim:
    """The claim with kernels that are not tuned."""
    run, pair = claim.run, claim.derivative
    if isinstance(pair, DerivativePair):
        pair = replace(pair, forward=WithFixedChoice(pair.forward), backward=WithFixedChoice(pair.backward))
    return replace(claim, run=None if run is None else WithFixedChoice(run), derivative=pair)


@lru_cache(maxsize=64)
def from_options(options: TritonOptions) -> OperatorExecutor:
    """The executor for these options, the same object for equal options."""
    compiler_hash.begin()
    claims = [claim for family in FAMILIES for claim in family.claims(options)]
    return OperatorExecutor("triton", tuple(claims if options.autotune else map(_fixed, claims)), varying_sizes=True)
