"""Strides of fake tensors: those of the kernels, for each ATen operator that OpInfo's samples call in other layouts.

PyTorch's metadata differs for some operators: `thunder_core.pytorch_errata` has their strides.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from tests.batteries import in_every_part, sample
from thunder_core.pytorch_internals import TorchDispatchMode, disable_current_modes
from thunder_core.tracing.fake_tensors import ObservingFakeMode
from thunder_testing.opinfo import OPERATORS, operator_names
from thunder_testing.opinfo_samples import sample_inputs

_SAMPLES: Final = 4


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() in (4, 5):
        return tensor.to(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    order = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(order).contiguous().permute(order)


def _exchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, 1).contiguous().transpose(0, 1) if tensor.dim() > 2 else tensor


def _in_every_second(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


_LAYOUTS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "channels last": _channels_last,
    "reversed": _reversed,
    "exchanged": _exchanged,
    "with gaps": _in_every_second,
}


class _Comparison(TorchDispatchMode):
    """Runs each ATen operator on fake tensors, too, once for equal metadata, and notes other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.different: list[str] = []
        self._known: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves, structure = tree_flatten((args, kwargs))
        key = (func, structure, *map(_metadata, leaves))
        inferred = None if func._schema.is_mutable or key in self._known else _inferred(func, args, kwargs)
        self._known.add(key)
        result = func(*args, **kwargs)
        for kernel, fake in zip(tree_leaves(result), tree_leaves(inferred)):
            if isinstance(kernel, torch.Tensor) and isinstance(fake, torch.Tensor) and _dense(kernel) != _dense(fake):
                strides = [
                    tuple(leaf.stride()) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
                ]
                self.different.append(f"{func} of {strides}: {_dense(kernel)}, not {_dense(fake)}")
        return result


def _metadata(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    strides = leaf.stride() if leaf.layout is torch.strided else None
    return type(leaf), leaf.layout, leaf.dtype, leaf.shape, strides, leaf.is_conj(), leaf.is_neg()


def _inferred(func: Any, args: Any, kwargs: Any) -> Any:
    """The result on fake tensors; None if it depends on values, or the operator does not support fake tensors."""
    with disable_current_modes():
        mode = ObservingFakeMode()
        args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        try:
            with mode:
                return func(*args, **kwargs)
        except Exception:  # of any operator
            return None


def _dense(tensor: torch.Tensor) -> tuple[int, ...] | None:
    if tensor.layout is not torch.strided or not tensor.numel():
        return None
    return tuple([stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1])


def _different(name: str, comparison: _Comparison) -> list[str]:
    """What differs for an operator, of calls that ``comparison`` has not met."""
    operator = OPERATORS[name]
    for layout in _LAYOUTS.values():
        for given in list(sample_inputs(operator, "cpu", torch.float32))[:_SAMPLES]:

            def laid_out(tensor: torch.Tensor, layout: Any = layout) -> torch.Tensor:
                if tensor.layout is not torch.strided:
                    return tensor
                return layout(tensor.detach()).requires_grad_(tensor.is_floating_point() and operator.supports_autograd)

            args, kwargs = tree_map_only(torch.Tensor, laid_out, ((given.input, *given.args), given.kwargs))
            with suppress(Exception), comparison:  # an operator may reject the layout
                results = [leaf for leaf in tree_leaves(operator.op(*args, **kwargs)) if _has_gradient(leaf)]
                wanted = [leaf for leaf in tree_leaves((args, kwargs)) if _has_gradient(leaf)]
                if results and wanted:
                    torch.autograd.grad(results, wanted, [*map(torch.ones_like, results)], allow_unused=True)
    found, comparison.different = comparison.different, []
    return found


def _has_gradient(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.layout is torch.strided


@in_every_part
@pytest.mark.one_version  # in 2.11 metadata of Fourier transforms of permuted tensors differs as well
@pytest.mark.timeout(900)
def test_strides_equal_those_of_kernels() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        comparison = _Comparison()
        different = {name: found for name in sample(operator_names()) if (found := _different(name, comparison))}
    assert different == {}
