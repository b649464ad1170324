"""The parameters whose gradients a DistributedDataParallel module averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch.autograd.graph import get_gradient_edge
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True, slots=True)
class Averaged:
    """A parameter whose gradient is averaged.

    Attributes:
        name: the name of the parameter, for messages.
        parameter: the parameter.
        stride: the strides of its gradient in a bucket: dense, with the same order of dimensions.
        node: the autograd node that accumulates its gradient; None if it does not require grad.
        sparse: whether its gradient is sparse, as for the weight of an embedding with ``sparse=True``.
    """

    name: str
    parameter: torch.Tensor
    stride: tuple[int, ...]
    node: Any
    sparse: bool


_known: Final[WeakKeyDictionary[DistributedDataParallel, tuple[Averaged, ...]]] = WeakKeyDictionary()


def named_parameters(module: DistributedDataParallel) -> list[tuple[str, torch.Tensor]]:
    """All parameters except `parameters_to_ignore`, each once, in the order of ``module.named_parameters()``."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for owner, part in module.module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            if f"{owner}.{name}" not in module.parameters_to_ignore:
                found.setdefault(id(parameter), (f"{owner}.{name}".lstrip("."), parameter))
    return list(found.values())


def averaged(module: DistributedDataParallel) -> tuple[Averaged, ...]:
    """The parameters of `named_parameters` as `Averaged`; computed once for each module."""
    known = _known.get(module)
    if known is None:
        sparse = {id(part.weight) for part in module.module.modules() if _gives_sparse_gradients(part)}
        known = _known[module] = tuple(
            [_averaged(name, parameter, id(parameter) in sparse) for name, parameter in named_parameters(module)]
        )
    return known


def prepared(module: DistributedDataParallel) -> tuple[Averaged, ...]:
    """`averaged`, computed again, because the module may have other parameters than before."""
    _known.pop(module, None)
    return averaged(module)


def _gives_sparse_gradients(part: torch.nn.Module) -> bool:
    return isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.sparse


def _averaged(name: str, parameter: torch.Tensor, sparse: bool) -> Averaged:
    node = get_gradient_edge(parameter).node if parameter.requires_grad else None
    return Averaged(name, parameter, torch.empty_like(parameter, device="meta").stride(), node, sparse)
