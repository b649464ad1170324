"""The resolvers of values while a program is recorded, in the order in which they are tried.

To add one, write a class with a method ``resolve`` (`thunder_core.acquire.data_dependence.Resolver`) in a new file, and
add it here. A result that needs another recording of the program is not a case for a resolver: see
`thunder_core.acquire.attempt`.
"""

from __future__ import annotations

from typing import Final

import torch

from thunder_core.acquire.constants import Constant, RandomRange
from thunder_core.acquire.data_dependence import Declined, Resolved, Resolver, ValueRequest
from thunder_core.acquire.deferred import Deferred
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.sampling import Sample
from thunder_core.acquire.size_arguments import SizeOfTensor
from thunder_core.acquire.speculation import Speculation
from thunder_core.pytorch_internals import set_cudnn_enabled


class WithoutCudnn:
    """Resolver that records a call on CUDA as PyTorch infers it without cuDNN, with the same metadata."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.data_dependence.Resolver`."""
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
