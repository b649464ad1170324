"""The gradients that inputs have before a program that runs autograd."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.symbol import Tag
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.functions import set_grad
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.tensor_state import GRAD

Tensor: Any = torch.Tensor  # its properties are descriptors; the stubs declare values
_IS_LEAF = Tensor.is_leaf.__get__
_HOOKS = (Tensor._backward_hooks.__get__, Tensor._post_accumulate_grad_hooks.__get__)
_ACCUMULATE = (torch.Tensor.backward, torch.autograd.backward)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def gradients_of_inputs(recorder: Recorder, observer: Observer) -> dict[str, str | None]:
    """The gradients before the program, as in `thunder_core.contract.Recording`, after it ran. Guards what it reads.

    Gradients that the program may add to become inputs. Programs that run autograd in other ways than by ``backward``
    are left to it, so that nothing is guarded for them.
    """
    ops = recorder.trace.ops
    running = [op for op in ops if Tag.RUNS_AUTOGRAD in op.symbol.tags]
    if not running or any(op.symbol.target not in _ACCUMULATE for op in running):
        return {}
    assigned = _assigned_first(ops)
    gradients: dict[str, str | None] = {}
    with recorder.suspension, DisableTorchFunction():
        for item in list(recorder.inputs):
            value = item.value
            if not isinstance(value, torch.Tensor) or not value.requires_grad or not value.is_leaf:
                continue
            observer.metadata_read(_IS_LEAF, [value])
            for hooks in _HOOKS:
                observer.metadata_read(hooks, [value])
            if type(value) not in _PLAIN or any(hooks(value) is not None for hooks in _HOOKS):
                continue
            if item.proxy.name in assigned:
                gradients[item.proxy.name] = ""
                continue
            observer.metadata_read(GRAD, [value])
            gradient = value.grad
            if gradient is None:
                gradients[item.proxy.name] = None
            elif type(gradient) is torch.Tensor and not gradient.requires_grad:
                recorder.inputs.lift(gradient)
                gradients[item.proxy.name] = recorder.inputs.object_proxy(gradient).name
    return gradients


def _assigned_first(ops: list[BoundSymbol]) -> frozenset[str]:
    """Names of the tensors whose gradient the program assigns before it runs autograd."""
    assigned: set[str] = set()
    for op in ops:
        if Tag.RUNS_AUTOGRAD in op.symbol.tags:
            break
        if op.symbol.target is set_grad:
            tensor: Proxy = op.args[0]
            assigned.add(tensor.name)
    return frozenset(assigned)
