"""The resolvers of values while a program is recorded, in the order in which they are tried.

To add one, write a class with a method ``resolve`` (`thunder_frontend.record.data_dependence.Resolver`) in a new file,
and add it here. A result that needs another recording of the program is not a case for a resolver: see
`thunder_frontend.record.attempt`.
"""

from __future__ import annotations

from typing import Final

import torch

from thunder_core.pytorch_internals import set_cudnn_enabled
from thunder_frontend.record.constants import Constant, RandomRange
from thunder_frontend.record.data_dependence import Declined, Resolved, Resolver, ValueRequest
from thunder_frontend.record.deferred import Deferred
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.sampling import Sample
from thunder_frontend.record.size_arguments import SizeOfTensor
from thunder_frontend.record.speculation import Speculation


class WithoutCudnn:
    """Resolver that records a call on CUDA as PyTorch infers it without cuDNN, with the same metadata."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_frontend.record.data_dependence.Resolver`."""
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
