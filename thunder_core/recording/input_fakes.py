"""Fake tensors of the inputs of a trace, which share storages and autograd history as the inputs do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from thunder_core.checks.shared_memory import base_of
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
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_alias, make_derived, make_fake, storage_address


class InputFakes:
    """Creates the fakes of inputs.

    A write to one of several views changes the gradients of the others. So the fake of a view is a view of a fake of
    its base, even if the program never uses the base. Detached tensors that share storage are separate to autograd.

    Args:
        mode: the mode of the fakes.
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
        """The fake of a dense tensor, with the metadata of ``proxy``.

        Args:
            varies: its sizes vary between calls. Its position in its storage is then unknown.
        """
        base = base_of(tensor)
        if varies:
            make = make_fake if tensor.is_leaf else make_derived
            fake = self._of_storage[storage_address(tensor)] = make(self._mode, proxy)
            self._of_base[tensor_identity(tensor)] = fake
            if base is tensor:
                return fake
            return view_like(fake, tensor, (fake.shape, fake.stride(), fake.storage_offset()))  # type: ignore[return-value]
        of_base = self._of_base.get(tensor_identity(base))
        if of_base is None:
            metadata = proxy if base is tensor else _metadata(base, proxy)
            of_base = self._of_base[tensor_identity(base)] = self._make_base(base, metadata)
        return of_base if base is tensor else view_like(of_base, tensor)  # type: ignore[return-value]

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
    """A view of ``base`` like ``tensor``; autograd accepts or refuses writes to it in the same way.

    Args:
        geometry: shape, strides and offset; by default those of ``tensor``.
    """
    creation = get_creation_meta(tensor)
    recorded = tensor.requires_grad and creation != CreationMeta.NO_GRAD_MODE
    with torch.inference_mode(False), torch.set_grad_enabled(recorded):
        view = base.as_strided(*(geometry or (tensor.shape, tensor.stride(), tensor.storage_offset())))
    if is_view(view):  # below autograd, where calls from functorch arrive, it is none
        set_creation_meta(view, creation)
    if version_of(base):
        torch.autograd.graph.increment_version(view)  # the program wrote the base when the view existed
    if tensor.requires_grad and not base.requires_grad:
        view.requires_grad_()
    return view
