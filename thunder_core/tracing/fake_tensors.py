"""Fake tensors with given metadata: on memory of their own or another's, and what they are to autograd."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import FakeTensor, FakeTensorMode, no_dispatch


class _Derived(torch.autograd.Function):
    """Makes a tensor that is not a leaf of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return leaf.detach()  # on the same memory, and no view to autograd

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def computed(leaf: torch.Tensor) -> torch.Tensor:
    """A tensor on the memory of ``leaf``, which requires grad, that autograd takes for computed from it."""
    with torch.enable_grad():
        return _Derived.apply(leaf)  # type: ignore[no-any-return]


class _Results(torch.autograd.Function):
    """Gives fake tensors that autograd takes for computed from others, which get gradients like themselves."""

    @staticmethod
    def forward(
        ctx: Any, results: Sequence[torch.Tensor], requires_grad: Sequence[bool], *arguments: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(*arguments)
        given = tuple([result.detach() for result in results])
        pairs = zip(given, requires_grad, strict=True)
        ctx.mark_non_differentiable(*[result for result, recorded in pairs if not recorded])
        return given

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *map(torch.zeros_like, ctx.saved_tensors)


def computed_from(results: Any, requires_grad: Sequence[bool], arguments: Sequence[torch.Tensor]) -> Any:
    """Nested fake tensors as autograd takes them for computed from ``arguments``.

    Args:
        requires_grad: of each result.
    """
    leaves = list(iterate_leaves(results))
    with torch.inference_mode(False), torch.enable_grad():
        given = iter(_Results.apply(leaves, tuple(requires_grad), *arguments))
    return map_leaves(lambda leaf: next(given), results)


def make_fake(mode: FakeTensorMode, proxy: TensorProxy, *, storage_size: int | None = None) -> FakeTensor:
    """A fresh fake tensor with a storage of its own and the metadata of ``proxy``.

    ``storage_size`` is the number of elements of the whole storage where other tensors may show more of it.
    """
    with no_dispatch(), torch.inference_mode(False), torch.no_grad():
        if storage_size is None and proxy.offset == 0:
            meta = torch.empty_strided(*on_fakes((proxy.shape, proxy.stride)), dtype=proxy.dtype, device="meta")
        else:
            size = storage_size if storage_size is not None else _extent(proxy)
            flat = torch.empty_strided((on_fakes(size),), (1,), dtype=proxy.dtype, device="meta")
            meta = flat.as_strided(*on_fakes(proxy.geometry))
        fake: FakeTensor = FakeTensor(mode, meta, proxy.device)
        if proxy.requires_grad:
            fake.requires_grad_()
    return fake


def make_alias(base: FakeTensor, proxy: TensorProxy, *, leaf: bool = False, derived: bool = False) -> FakeTensor:
    """A fake with the metadata of ``proxy`` that shares the storage of ``base``; a view of it by default.

    Args:
        leaf: a leaf of the autograd graph instead.
        derived: a computed tensor instead.
    """
    apart = leaf or derived  # autograd looks at writes to views
    # a view that does not require grad, though its base does, was created while gradients were disabled
    enabled = (proxy.requires_grad or not base.requires_grad) and not apart
    with torch.inference_mode(False), torch.set_grad_enabled(enabled):
        source = base if base.dtype == proxy.dtype else base.view(proxy.dtype)
        fake: FakeTensor = source.as_strided(*on_fakes(proxy.geometry))  # type: ignore[assignment]
        if apart:
            fake = fake.detach()  # type: ignore[assignment]
            fake.requires_grad_(proxy.requires_grad)
        if not derived or not proxy.requires_grad:
            return fake
        return computed(fake)  # type: ignore[return-value]


def make_derived(mode: FakeTensorMode, proxy: TensorProxy, *, storage_size: int | None = None) -> FakeTensor:
    """Like `make_fake`; a proxy that requires grad becomes a computed tensor instead of a leaf."""
    if not proxy.requires_grad:
        return make_fake(mode, proxy, storage_size=storage_size)
    with torch.inference_mode(False), torch.enable_grad():
        if storage_size is None and proxy.offset == 0:
            return computed(make_fake(mode, proxy))  # type: ignore[return-value]
        size = storage_size if storage_size is not None else _extent(proxy)
        whole = computed(make_fake(mode, replace(proxy, shape=(size,), stride=(1,), offset=0)))
        return whole.as_strided(*on_fakes(proxy.geometry))  # type: ignore[return-value]


def _extent(proxy: TensorProxy) -> Any:
    size: Any = proxy.offset
    for length, stride in zip(proxy.shape, proxy.stride, strict=True):
        if length == 0:
            return proxy.offset
        size = size + (length - 1) * stride
    return size + 1


def make_sharing_fakes(mode: FakeTensorMode, proxies: Iterable[TensorProxy]) -> dict[str, torch.Tensor]:
    """Fake tensors like the proxies, by name, that share storages as these do and do not require grad."""
    groups: dict[int, list[TensorProxy]] = {}
    for proxy in proxies:
        groups.setdefault(proxy.storage, []).append(proxy)
    fakes: dict[str, torch.Tensor] = {}
    with mode, torch.inference_mode(False), torch.no_grad():
        for group in groups.values():
            if len(group) == 1:
                fakes[group[0].name] = make_fake(mode, replace(group[0], requires_grad=False))
            else:
                whole = _whole(group)
                for proxy in group:
                    elements = whole if whole.dtype == proxy.dtype else whole.view(proxy.dtype)
                    fakes[proxy.name] = elements.as_strided(*on_fakes(proxy.geometry))
    return fakes


def _whole(proxies: Sequence[TensorProxy]) -> torch.Tensor:
    """A tensor that shows the whole memory of these, of their dtype if they have one; of bytes otherwise."""
    dtypes = {proxy.dtype for proxy in proxies}
    size: Any = 0
    for proxy in proxies:
        size = torch.sym_max(size, on_fakes(_extent(proxy)))
    if len(dtypes) == 1:
        return torch.empty(size, dtype=proxies[0].dtype, device=proxies[0].device)
    return torch.empty(size * 16, dtype=torch.uint8, device=proxies[0].device)  # a multiple of every element size
