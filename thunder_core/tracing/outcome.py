"""The metadata of a call's results, and a cache of it: equal calls (each layer of a model) are inferred once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from thunder_core.errors import InternalError, ThunderError
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.size import from_fake
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import FakeTensor, version_of, view_base
from thunder_core.tracing.creation import created
from thunder_core.tracing.fake_tensors import Observed, storage_address
from thunder_core.tracing.frames import calls_program, user_location
from thunder_core.tracing.recurrent import inferred_results
from thunder_core.tracing.sizes import kernels_for_sizes


@dataclass(frozen=True, slots=True)
class Slot:
    """Placeholder of the i-th tensor in a result's structure."""

    index: int


@dataclass(frozen=True, slots=True)
class Result:
    """One tensor of a call's result.

    Attributes:
        same_as: index of the tensor argument that the result *is* (in-place calls, ``contiguous()``), or -1.
        shares: index of the tensor argument whose storage the result shares, or -1.
        shares_result: index of an earlier result whose storage it shares, or -1.
        shape, stride, offset, dtype, device, requires_grad, layout: metadata.
        detached: whether autograd does not treat it as a view, even if it shares storage with another tensor.
    """

    same_as: int
    shares: int
    shares_result: int
    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    layout: torch.layout = torch.strided
    detached: bool = False


class WrapperResultError(Exception):
    """A call returns a tensor of a class with a ``__torch_dispatch__``, which cannot be the result of an op."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The inferred metadata and effects of one call.

    Attributes:
        structure: the result with each tensor replaced by a `Slot`.
        results: the tensors.
        written: indices of the tensor arguments whose storage the call wrote.
        uncounted: whether the call increased the ``_version`` of none of ``written``.
        random: whether it drew random numbers.
        external: whether it had an effect visible outside of its tensors.
        channels: the channels that it communicated in.
        cacheable: whether an equal call has the same outcome and need not run on fakes.
        in_sparse: indices of the dense tensor arguments that are parts of a sparse tensor, such as its values, after
            the call.
        reads_sparse: whether a result is a part of a sparse tensor among the arguments.
        irremovable: whether the call had effects besides writes, as `Effects.irremovable`.
        identical: whether all tensors of the result are arguments of the call.
    """

    structure: Any
    results: tuple[Result, ...]
    written: tuple[int, ...]
    random: bool
    cacheable: bool
    external: bool = False
    channels: tuple[str, ...] = ()
    in_sparse: tuple[int, ...] = ()
    reads_sparse: bool = False
    uncounted: bool = False
    irremovable: bool = field(init=False)
    identical: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "irremovable", self.random or self.external or bool(self.channels))
        object.__setattr__(self, "identical", all(result.same_as >= 0 for result in self.results))

    def effects(self, symbol: Symbol, tensors: Sequence[Proxy]) -> Effects:
        """The effects of the call as an op with this symbol, of which ``tensors`` are the tensor arguments in order."""
        empty = self.structure in ((), [])  # of `torch.unbind` along a dimension of size 0
        silent = not (self.results or self.written or self.channels or empty)
        external = Tag.CHANGES_AUTOGRAD in symbol.tags or self.external or silent
        if not (self.written or self.irremovable or external):
            return PURE
        names = tuple(dict.fromkeys(tensors[index].name for index in self.written))
        return Effects(names, self.random, external, self.channels, self.uncounted)


@calls_program
def infer(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    fakes: list[torch.Tensor],
    observed: Observed,
) -> tuple[Outcome, list[torch.Tensor]]:
    """Run ``target`` on fake arguments, of which ``fakes`` are the tensors in order; effects appear in ``observed``.

    Returns the outcome and the fake of each result. Must run inside the fake mode with ``observed`` active.

    Raises:
        WrapperResultError: a result is a tensor that holds tensors.
        InternalError: the outcome cannot be described, although the call works.
        Exception: any exception of the call.
    """
    versions = [_version(fake) for fake in fakes]
    with kernels_for_sizes(target, args, kwargs):
        value = inferred_results(target, args, kwargs)
        if value is NotImplemented:
            value = created(target, args, kwargs)
        if value is NotImplemented:
            value = target(*args, **kwargs)
    try:
        return _described(value, kwargs, fakes, versions, observed)
    except (ThunderError, WrapperResultError):
        raise
    except Exception as error:
        raise InternalError(
            f"the results of {getattr(target, '__name__', target)} on fake tensors cannot be described: "
            f"{type(error).__name__}: {error}",
            location=user_location(),
        ) from error


def _described(
    value: Any,
    kwargs: dict[str, Any],
    fakes: list[torch.Tensor],
    versions: list[int | None],
    observed: Observed,
) -> tuple[Outcome, list[torch.Tensor]]:
    """The outcome of a call that returned ``value``, and the fake of each result.

    Args:
        versions: those of the fakes before the call.
    """
    for leaf in iterate_leaves(kwargs.get("out")):  # some meta kernels return it without writing it
        if isinstance(leaf, torch.Tensor):
            observed.written.add(storage_address(leaf))
    arguments = {id(fake): index for index, fake in reversed(list(enumerate(fakes)))}
    storages = {storage_address(fake): index for index, fake in reversed(list(enumerate(fakes)))}
    results: list[Result] = []
    tensors: list[torch.Tensor] = []
    result_storages: dict[int, int] = {}

    def describe(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return from_fake(leaf)
        if type(leaf).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not isinstance(leaf, FakeTensor):
            raise WrapperResultError(type(leaf).__qualname__)
        address = storage_address(leaf)
        sources = arguments.get(id(leaf), -1), storages.get(address, -1), result_storages.get(address, -1)
        slot = Slot(len(results))
        results.append(_result(leaf, *sources))
        if isinstance(leaf, FakeTensor):
            leaf.constant = None  # its value would decide later calls, whose keys have metadata only
        tensors.append(leaf)
        result_storages.setdefault(address, slot.index)
        return slot

    structure = map_leaves(describe, value)
    written = tuple(index for index, fake in enumerate(fakes) if storage_address(fake) in observed.written)
    plain = all(leaf.layout is torch.strided and not (leaf.is_conj() or leaf.is_neg()) for leaf in tensors)
    cacheable = plain and not written and bool(results)
    effects = observed.random, cacheable, observed.external, tuple(observed.channels)
    parts = {storage_address(part) for tensor in (*fakes, *tensors) for part in _parts(tensor)}
    in_sparse = tuple(index for index, fake in enumerate(fakes) if storage_address(fake) in parts)
    reads_sparse = not parts.isdisjoint(result_storages.keys() - storages.keys())
    uncounted = bool(written) and all(versions[index] == _version(fakes[index]) for index in written)
    return Outcome(structure, tuple(results), written, *effects, in_sparse, reads_sparse, uncounted), tensors


def _version(tensor: torch.Tensor) -> int | None:
    """The number of writes to a tensor that autograd has counted; None for an inference tensor, which has no count."""
    return None if tensor.is_inference() else int(version_of(tensor))


_PARTS: Final[dict[torch.layout, tuple[str, ...]]] = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""By layout, the methods that return the dense tensors of which a sparse tensor consists."""
LAYOUTS: Final = frozenset({torch.strided, *_PARTS})
"""The layouts that results of ops can have."""


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    return [getattr(tensor, name)() for name in _PARTS.get(tensor.layout, ())]


def _result(fake: torch.Tensor, same_as: int, shares: int, shares_result: int) -> Result:
    dense = fake.layout is torch.strided
    return Result(
        same_as,
        shares,
        shares_result,
        from_fake(tuple(fake.shape)),
        from_fake(fake.stride()) if dense else (),
        from_fake(fake.storage_offset()) if dense else 0,
        fake.dtype,
        fake.device,
        fake.requires_grad,
        fake.layout,
        detached=view_base(fake) is None and not fake.requires_grad,
    )
