"""Admission of tensors to compiled regions: a region never runs on tensors that it was not compiled for.

Guards and the checks of the first run compare most tensors with the trace. Others reach a region unseen: what a program
saved for backward may be cast meanwhile (``module.to(dtype)``, ``saved_tensors_hooks``), and results of PyTorch's
operators may be lazy (zeros without memory, conjugates, negatives) or have other strides than the trace says.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder_core.checks.tensor_guard import TensorsMemo, same_stride
from thunder_core.executors.executor import RegionCall, RegionError
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_sizes, compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.operations import strided_copy, with_strides
from thunder_core.pytorch_internals import dispatch_keys, is_zerotensor, len_torch_dispatch_stack


class AdmittedRegion:
    """Calls a compiled region with tensors that it was compiled for, and PyTorch's kernels with others.

    Lazy tensors are computed first, and tensors with other strides copied. PyTorch's kernels run the region's ops if a
    tensor has another dtype, shape or device, if it belongs to a transform of `torch.func` or to a wrapper subclass, or
    if a mode of PyTorch's dispatcher is active, which sees the operators as in eager. They also run if the region
    raises `RegionError`, to raise eager's exception.

    Attributes:
        call: the compiled region.
    """

    __slots__ = ("_expected", "_memo", "_proxies", "_reference", "_region", "_written", "call")

    def __init__(self, call: RegionCall, region: Trace) -> None:
        self.call = call
        self._region = region
        self._proxies = [(index, proxy) for index, proxy in enumerate(region.inputs) if isinstance(proxy, TensorProxy)]
        geometry = tuple([(tuple(proxy.shape), tuple(proxy.stride)) for _, proxy in self._proxies])
        self._expected = compile_sizes(geometry, region.sizes)
        self._written = frozenset(Aliases.of(region).written_inputs)
        self._memo = TensorsMemo(())
        self._reference: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        try:
            if self._memo.check(*inputs):
                return self.call(*inputs)
            admitted = None if len_torch_dispatch_stack() else self._admitted(inputs)
            return self._by_pytorch(inputs) if admitted is None else self.call(*admitted)
        except RegionError as error:
            failure = error
        copied = [strided_copy(value) if index in self._written else value for index, value in enumerate(inputs)]
        self._by_pytorch(tuple(copied))  # raises
        raise failure

    def _admitted(self, inputs: tuple[Any, ...]) -> Sequence[Any] | None:
        """The inputs, some of them computed or copied; None if the region must not run on them."""
        admitted = list(inputs)
        expected = self._expected(*inputs[len(self._region.inputs) :])
        for (index, proxy), (shape, stride) in zip(self._proxies, expected, strict=True):
            tensor = _computed(inputs[index])
            if tensor is None or (tensor.dtype, tensor.device, tuple(tensor.shape)) != (
                proxy.dtype,
                proxy.device,
                shape,
            ):
                return None
            if not same_stride(tensor.stride(), (stride, shape)):
                tensor = with_strides(tensor, stride)
            if tensor is not inputs[index] and index in self._written:
                return None
            admitted[index] = tensor
        if len(self._proxies) == len(inputs) and all(map(operator.is_, admitted, inputs)):
            self._memo.remember(*inputs)
        return admitted

    def _by_pytorch(self, inputs: tuple[Any, ...]) -> Sequence[Any]:
        if self._reference is None:
            self._reference = compile_trace(self._region)
        results: Sequence[Any] = self._reference(*inputs)
        return results


def region_call(op: BoundSymbol) -> RegionCall | None:
    """The compiled region that an op calls; None for other ops."""
    return op.symbol.target.call if isinstance(op.symbol.target, AdmittedRegion) else None


def _computed(value: Any) -> torch.Tensor | None:
    """A plain strided tensor with the values of a tensor; None for tensors that are not plain otherwise."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    if dispatch_keys(value).raw_repr() in _plain_keys(value.device):
        return value
    if is_zerotensor(value):
        value = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_()
    elif value.is_conj() or value.is_neg():
        value = value.detach().resolve_conj().resolve_neg()
    return value if dispatch_keys(value).raw_repr() in _plain_keys(value.device) else None


@functools.cache
def _plain_keys(device: torch.device) -> frozenset[int]:
    """The sets of dispatch keys of plain tensors on a device, inside and outside of inference mode."""
    keys = []
    for inference in (False, True):
        with torch.inference_mode(inference):
            keys.append(dispatch_keys(torch.empty(0, device=device)).raw_repr())
    return frozenset(keys)
