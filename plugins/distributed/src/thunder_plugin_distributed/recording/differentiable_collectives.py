"""The collectives that autograd differentiates: those of `torch.distributed.nn.functional`, and of SyncBatchNorm.

PyTorch defines them as subclasses of `torch.autograd.Function`, whose forward and backward communicate. A call and its
derivative are recorded in the same way as calls with wrapper subclasses
(`thunder_frontend.record.tensor_classes.WrapperCalls`): the collectives of both are ops with channels.

Some collectives write their arguments and return them. The recorded calls write buffers of the call instead, which are
its results and are copied to the arguments: a call whose derivative is recorded writes no storage from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_frontend.record import subclasses
from thunder_frontend.record.autograd_functions import autograd_function_calls
from thunder_frontend.record.recorder import Recorder

OUTPUTS: Final = {"_Reduce_Scatter": 2, "_AlltoAll": 1, "_AlltoAllSingle": 1}
"""By class, the index among the arguments of ``apply`` of the tensor, or the list of tensors, that is written."""


def apply(
    recorder: Recorder, original: Callable[..., Any], cls: type[torch.autograd.Function], /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of ``cls.apply`` of a class whose forward and backward communicate."""
    place = OUTPUTS.get(cls.__name__)
    if place is None or subclasses.wrappers((*args, *kwargs.values())):
        return autograd_function_calls(recorder, cls, args, kwargs)
    result = autograd_function_calls(recorder, cls, args, kwargs, lambda given: _with_buffers(given, place))
    _copy_to(args[place], result)
    return result


def _with_buffers(args: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    """The arguments, with a new buffer in place of each tensor that is written."""
    outputs = args[place]
    buffers = list(map(torch.empty_like, outputs)) if isinstance(outputs, list | tuple) else torch.empty_like(outputs)
    return (*args[:place], buffers, *args[place + 1 :])


def _copy_to(outputs: Any, results: Any) -> None:
    """Write results to the tensors that the program passed for them.

    The tensors of a list get the results' place in the autograd graph, as eager marks them as results. A single tensor
    does not: PyTorch's function takes it as an argument and returns a view of it.
    """
    if isinstance(outputs, list | tuple):
        for output, result in zip(outputs, results, strict=True):
            output.copy_(result)
        return
    with torch.no_grad():
        outputs.copy_(results)
