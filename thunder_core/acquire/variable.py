"""What the recorder knows about one tensor object of the running program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy

if TYPE_CHECKING:
    from thunder_core.pytorch_internals import FakeTensor

MetadataKey = tuple[Any, ...]


class Variable:
    """A mutable binding from a tensor object to the proxy that currently names its value.

    Attributes:
        proxy: the current name and metadata.
        fake: the fake tensor with the same metadata, or None until somebody needs it.
        base: the variable whose storage ``fake`` must share when it is made; None for a storage of its own.
        detached: ``fake`` is no view to autograd, although it shares the storage of ``base``.
        constant: the value depends on no input and on no random state.
        location: where it was made, for messages.
    """

    __slots__ = ("base", "constant", "detached", "fake", "key", "location", "proxy")

    def __init__(
        self,
        proxy: TensorProxy,
        *,
        fake: FakeTensor | None = None,
        base: Variable | None = None,
        constant: bool = False,
        detached: bool = False,
        location: SourceLocation | None = None,
    ) -> None:
        self.proxy = proxy
        self.fake = fake
        self.base = base
        self.constant = constant
        self.detached = detached
        self.location = location
        self.key = metadata_key(proxy)


def metadata_key(proxy: TensorProxy) -> MetadataKey:
    """Everything about a tensor that may decide the metadata of a call's results."""
    return (proxy.shape, proxy.stride, proxy.offset, proxy.dtype, proxy.device, proxy.requires_grad, proxy.layout)
