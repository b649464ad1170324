"""The executor: a table of the operations for which Apex has kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch.nn.functional as F

import thunder_plugin_composites as composites
from thunder_core.errors import ExecutorError
from thunder_core.executors import Claim, OperatorExecutor
from thunder_plugin_apex import composite, cross_entropy, layer_norm, library, rms_norm
from thunder_plugin_apex.options import ApexOptions


class ApexExecutor(OperatorExecutor):
    """Runs normalizations and cross entropy with the kernels of NVIDIA Apex.

    Attributes:
        options: as configured.
        device: the type of device of the kernels.
    """

    options: ApexOptions
    device: str

    def __init__(self, options: ApexOptions | None = None, device: str = "cuda") -> None:
        object.__setattr__(self, "options", options or ApexOptions())
        object.__setattr__(self, "device", device)
        less = self.options.memory_efficient
        layer = layer_norm.PAIR_SAVING_OUTPUT if less else layer_norm.PAIR
        rms = rms_norm.PAIR_SAVING_OUTPUT if less else rms_norm.PAIR
        spelled_out = composite.PAIR_SAVING_OUTPUT if less else composite.PAIR
        missing = {name: library.problem(name) for name in library.SIGNATURES}
        if all(missing.values()):
            raise ExecutorError("apex: none of its kernels can be used", advice=tuple(filter(None, missing.values())))

        def claim(symbol: Any, unfit_call: Callable[..., str | None], pair: Any, module: str) -> Claim:
            def check(*args: Any, **kwargs: Any) -> bool | str:
                return missing[module] or unfit_call(device, *args, **kwargs) or True

            return Claim(symbol, check=check, derivative=pair)

        claims = (
            claim(F.layer_norm, layer_norm.unfit_call, layer, library.NORMS),
            claim(F.rms_norm, rms_norm.unfit_call, rms, library.NORMS),
            claim(composites.rms_norm, composite.unfit_call, spelled_out, library.NORMS),
            claim(F.cross_entropy, cross_entropy.unfit_call, cross_entropy.PAIR, library.CROSS_ENTROPY),
        )
        super().__init__("apex", claims)


@lru_cache(maxsize=8)
def from_options(options: ApexOptions) -> ApexExecutor:
    """The executor for these options, the same object for equal options.

    Raises:
        ExecutorError: Apex was built without any of the kernels.
    """
    return ApexExecutor(options)
