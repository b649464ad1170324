"""Fakes of real tensors: views of one tensor, leaves and computed tensors, as autograd knows the real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from thunder_core.guards.shared_memory import base_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.pytorch_internals import (
    CreationMeta,
    FakeTensor,
    get_creation_meta,
    is_view,
    set_creation_meta,
    tensor_identity,
    version_of,
)
from thunder_core.tracing.fake_mode import ObservingFakeMode, storage_address
from thunder_core.tracing.fake_tensors import make_alias, make_derived, make_fake


class InputFakes:
    """Makes them. What is written to one of several views shows in the gradients of the others, so that a view has a
    fake of the tensor that it is a view of, also where the program never sees that one; and in memory that detached
    tensors share, each has a place of its own in autograd.

    Args:
        mode: what they belong to.
    """

    def __init__(self, mode: ObservingFakeMode) -> None:
        self._mode = mode
        self._of_storage: dict[int, FakeTensor] = {}
        self._of_base: dict[int, FakeTensor] = {}

    def close(self) -> None:
        """Forget them."""
        self._of_storage.clear()
        self._of_base.clear()

    def make(self, tensor: torch.Tensor, proxy: TensorProxy, *, varies: bool = False) -> FakeTensor:
        """The fake of a dense tensor, whose metadata is that of ``proxy``. Its memory has one number of its own.

        Args:
            varies: its sizes vary between calls. What else is in its memory is not known then.
        """
        base = base_of(tensor)
        if varies:
            make = make_fake if tensor.is_leaf else make_derived
            own = self._of_storage[storage_address(tensor)] = make(self._mode, proxy)
            self._of_base[tensor_identity(tensor)] = own
            return own if base is tensor else view_like(own, tensor, (own.shape, own.stride(), own.storage_offset()))  # type: ignore[return-value]
        fake = self._of_base.get(tensor_identity(base))
        if fake is None:
            seen = proxy if base is tensor else _metadata(base, proxy)
            fake = self._of_base[tensor_identity(base)] = self._make_base(base, seen)
        return fake if base is tensor else view_like(fake, tensor)  # type: ignore[return-value]

    def _make_base(self, base: torch.Tensor, proxy: TensorProxy) -> FakeTensor:
        address = storage_address(base)
        sibling = self._of_storage.get(address)
        if sibling is not None:
            return make_alias(sibling, proxy, leaf=base.is_leaf, derived=not base.is_leaf)
        size = base.untyped_storage().nbytes() // max(base.element_size(), 1)
        part = base.storage_offset() != 0 or size > base.numel()
        make = make_fake if base.is_leaf else make_derived
        fake = self._of_storage[address] = make(self._mode, proxy, storage_size=size if part else None)
        return fake


def _metadata(tensor: torch.Tensor, like: TensorProxy) -> TensorProxy:
    return replace(
        like,
        shape=tuple(tensor.shape),
        stride=tensor.stride(),
        offset=int(tensor.storage_offset()),
        requires_grad=tensor.requires_grad,
    )


def view_like(base: torch.Tensor, tensor: torch.Tensor, geometry: tuple[Any, Any, Any] | None = None) -> torch.Tensor:
    """A view of ``base`` as ``tensor`` is one of its base; autograd takes writes to it, or refuses them, likewise.

    Args:
        geometry: shape, strides and offset; by default those of ``tensor``.
    """
    creation = get_creation_meta(tensor)
    recorded = tensor.requires_grad and creation != CreationMeta.NO_GRAD_MODE
    with torch.inference_mode(False), torch.set_grad_enabled(recorded):
        view = base.as_strided(*(geometry or (tensor.shape, tensor.stride(), tensor.storage_offset())))
    if is_view(view):  # not below autograd, where calls arrive that escaped functorch
        set_creation_meta(view, creation)
    if version_of(base):
        torch.autograd.graph.increment_version(view)  # the program wrote the base when the view existed
    if tensor.requires_grad and not base.requires_grad:
        view.requires_grad_()
    return view
