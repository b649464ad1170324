"""Calls whose kernels of cuDNN look at the storages of weights."""

from __future__ import annotations

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.pytorch_internals import set_cudnn_enabled


class WithoutCudnn:
    """Records a call on CUDA as PyTorch infers it without cuDNN: its results look alike."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        if request.reads:
            return Declined("a call that reads a value does not need cuDNN")
        if not torch.backends.cudnn.enabled:
            return Declined("cuDNN is switched off")
        if not any(proxy.device.type == "cuda" for proxy in request.call.proxies):
            return Declined("no argument is on CUDA")
        try:
            set_cudnn_enabled(False)
            return Resolved(recorder.call_symbol(request.symbol, request.args, request.kwargs))
        finally:
            set_cudnn_enabled(True)
