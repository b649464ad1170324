"""The ways to know a value while a program is recorded, in the order in which they are tried.

To add one: a class with a method ``resolve`` (`thunder_core.acquire.recorder.Resolver`) in a file of its own, and its
place here. What needs another recording of the program is no resolver: see `thunder_core.acquire.attempt`.
"""

from __future__ import annotations

from typing import Final

import torch

from thunder_core.acquire.concrete import Constant
from thunder_core.acquire.deferred import Deferred
from thunder_core.acquire.probe import Sample
from thunder_core.acquire.ranges import RandomRange
from thunder_core.acquire.recorder import Recorder, Resolver
from thunder_core.acquire.size_tensors import SizeOfTensor
from thunder_core.acquire.speculation import Speculation
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


RESOLVERS: Final[tuple[Resolver, ...]] = (
    Constant(),
    RandomRange(),
    WithoutCudnn(),
    SizeOfTensor(),
    Deferred(),
    Speculation(),
    Sample(),
)
