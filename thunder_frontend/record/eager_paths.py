"""Interceptions by which PyTorch's attention modules take the same path as in eager.

Where no gradients are recorded, `torch.nn.MultiheadAttention` and `torch.nn.TransformerEncoderLayer` call one native
function. Its results differ from the operations that it replaces: in strides, and in rows whose keys are all masked.
`torch.nn.TransformerEncoder` also removes padding by nested tensors, and fills it with zeros. The modules take these
paths only if no mode overrides PyTorch's functions and nothing compiles. Here they get the same values as in eager: the
native functions are recorded as operators, and an encoder that removes padding is one op, which runs as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.errors import DataDependentError, trying
from thunder_core.ir.size import from_fake
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    get_function_stack_at,
    is_torch_function_enabled,
    len_torch_function_stack,
)
from thunder_core.symbols.recording import RecordingMode
from thunder_core.tracing.frames import CodeKind, calling_frame, calling_module, kind_of, user_location
from thunder_frontend.record import data_dependence, subclasses
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.eager_calls import OPTIMIZERS
from thunder_frontend.record.function_bodies import is_body
from thunder_frontend.record.interception import copy_of
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.sampling import record_checked

_MODULES: Final = frozenset({"torch.nn.modules.activation", "torch.nn.modules.transformer"})
_REGIONS: Final = "torch._higher_order_ops.invoke_subgraph"  # up to PyTorch 2.11 they call Dynamo where they compile
_NOT_COMPILING: Final = _MODULES | OPTIMIZERS | {"torch.distributed.nn.functional", _REGIONS}
_encoder: Callable[..., Any] = copy_of(torch.nn.TransformerEncoder.forward)
_NAME: Final = "torch.nn.TransformerEncoder.forward"
_ENCODER: Final = Symbol(_NAME, _encoder)
_RECORDED_ENCODER: Final = Symbol(_NAME, _encoder, tags=frozenset({Tag.AUTOGRAD}))


class _RemovesPadding(Exception):
    """Raised instead of creating a nested tensor."""


def has_torch_function(
    arguments_of: Callable[..., Iterable[Any]], recorder: Recorder, original: Callable[..., bool], /, *args: Any
) -> bool:
    """The interception of a function of `HAS_TORCH_FUNCTION`: eager's result for attention modules and user code.

    Other functions of PyTorch see the recorder's mode, so that they are recorded.
    """
    overridden = _has_overrides(arguments_of(*args))
    return original(*args) if overridden is None else overridden


HAS_TORCH_FUNCTION: Final[dict[str, Callable[..., Iterable[Any]]]] = {
    "has_torch_function": lambda arguments: arguments,
    "has_torch_function_unary": lambda argument: (argument,),
    "has_torch_function_variadic": lambda *arguments: arguments,
}
"""By name of a function of `torch.overrides`: how it takes the arguments that it checks."""


def _has_overrides(arguments: Iterable[Any]) -> bool | None:
    """Whether anything but the recorder overrides functions of these arguments; None for a call from PyTorch."""
    caller = calling_frame()
    if caller is None:
        return None
    checks = caller.f_globals.get("__name__") in _MODULES or is_body(caller) or kind_of(caller.f_code) is CodeKind.USER
    if not checks:
        return None
    if not is_torch_function_enabled():
        return False
    modes = [get_function_stack_at(index) for index in range(len_torch_function_stack())]
    if not all(isinstance(mode, RecordingMode) for mode in modes):
        return True
    return any(subclasses.has_torch_function(type(value)) for value in arguments)


def is_compiling(recorder: Recorder, original: Callable[[], bool]) -> bool:
    """The interception of `torch.compiler.is_compiling`.

    False for a call from an attention module, an optimizer, a differentiable collective or a region to compile once.
    """
    return calling_module() not in _NOT_COMPILING and original()


def is_left_aligned(
    recorder: Recorder, original: Callable[..., bool], tensor: torch.Tensor, mask: torch.Tensor
) -> bool:
    """The interception of the check for left-aligned masks: True for a call from an encoder, as in eager.

    The encoder then calls `without_padding`, or ignores the result.
    """
    return calling_module() in _MODULES or original(tensor, mask)


def without_padding(
    recorder: Recorder,
    original: Callable[..., torch.Tensor],
    tensor: torch.Tensor,
    mask: torch.Tensor,
    mask_check: bool = True,
) -> torch.Tensor:
    """The interception of `torch._nested_tensor_from_mask`: raises for a call from an encoder, see `encoder`."""
    if calling_module() in _MODULES:
        raise _RemovesPadding
    return original(tensor, mask, mask_check)


def is_causal_mask(
    recorder: Recorder,
    original: Callable[..., bool],
    mask: torch.Tensor | None,
    is_causal: bool | None = None,
    size: int | None = None,
) -> bool:
    """The interception of `torch.nn.modules.transformer._detect_is_causal_mask`: False for a data-dependent mask.

    The result is a hint that chooses a kernel. Without it the mask is applied as it is, with the same result.
    """
    try:
        with trying():
            return original(mask, is_causal, size)
    except DataDependentError:
        return False


def encoder(
    recorder: Recorder,
    original: Callable[..., Any],
    module: torch.nn.TransformerEncoder,
    /,
    src: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """The interception of an encoder's forward: recorded as its calls or, where it removes padding, as one op."""
    try:
        return original(module, src, *args, **kwargs)
    except _RemovesPadding:
        with recorder.suspension, DisableTorchFunction():
            return _record(recorder, (module, src, *args), kwargs)


def _record(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    call = CallArguments(recorder.inputs, args, kwargs)
    try:  # without a mask no padding is removed, and the metadata is the same
        outcome, fakes = recorder.infer(_ENCODER, args[:2], {}, ())
    except data_dependence.EXCEPTIONS as error:
        raise data_dependence.error(_ENCODER, call.variables, user_location(), error) from error
    symbol = _RECORDED_ENCODER if any(result.requires_grad for result in outcome.results) else _ENCODER
    with recorder.tensors.fake_mode.observing():  # the padded result is contiguous, whatever strides the layers return
        fakes = [fake.contiguous() for fake in fakes]
    pairs = zip(outcome.results, fakes, strict=True)
    outcome = replace(
        outcome, results=tuple([replace(old, stride=from_fake(new.stride()), offset=0) for old, new in pairs])
    )
    return record_checked(recorder, symbol, call, outcome, fakes)
