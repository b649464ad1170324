"""PyTorch's attention modules take the path that they take in eager.

Where no gradients are recorded, `torch.nn.MultiheadAttention` and `torch.nn.TransformerEncoderLayer` call one native
function, which differs from the operations that it stands for: in strides, in the numbers of rows whose keys are all
masked. `torch.nn.TransformerEncoder` moreover leaves out padding by nested tensors, and fills it with zeros. Before,
the modules ask whether somebody overrides PyTorch's functions or compiles. They are told what eager tells them: the
native functions are recorded as such, and an encoder that leaves out padding is one line, run as eager runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from types import FrameType
from typing import Any, Final

import torch

from thunder_core.acquire import data_dependence
from thunder_core.acquire.arguments import Call
from thunder_core.acquire.interception import copy_of
from thunder_core.acquire.optimizer_updates import OPTIMIZERS
from thunder_core.acquire.probe import record_checked
from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import DataDependentError, trying
from thunder_core.guards.code_kinds import CodeKind, is_of_thunder, kind_of
from thunder_core.ir.size import from_fake
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    disabled_torch_function_impl,
    get_function_stack_at,
    is_torch_function_enabled,
    len_torch_function_stack,
)
from thunder_core.symbols.recording import RecordingMode
from thunder_core.tracing.user_frames import user_location

_MODULES: Final = frozenset({"torch.nn.modules.activation", "torch.nn.modules.transformer"})
_NOT_COMPILING: Final = _MODULES | OPTIMIZERS
_encoder: Callable[..., Any] = copy_of(torch.nn.TransformerEncoder.forward)
_NAME: Final = "torch.nn.TransformerEncoder.forward"
_ENCODER: Final = Symbol(_NAME, _encoder)
_RECORDED_ENCODER: Final = Symbol(_NAME, _encoder, tags=frozenset({Tag.AUTOGRAD}))


class _LeavesOutPadding(Exception):
    """Raised in place of making a nested tensor."""


def has_torch_function(recorder: Recorder, original: Callable[..., bool], arguments: Iterable[Any]) -> bool:
    """`torch.overrides.has_torch_function`, without the recorder's own overrides if they are no business of who asks.

    Attention modules and the user's code are told what eager tells them; PyTorch's functions ask to be recorded.
    """
    own = _has_overrides(arguments)
    return original(arguments) if own is None else own


def has_torch_function_unary(recorder: Recorder, original: Callable[..., bool], argument: Any) -> bool:
    """`torch.overrides.has_torch_function_unary`, likewise."""
    own = _has_overrides((argument,))
    return original(argument) if own is None else own


def has_torch_function_variadic(recorder: Recorder, original: Callable[..., bool], *arguments: Any) -> bool:
    """`torch.overrides.has_torch_function_variadic`, likewise."""
    own = _has_overrides(arguments)
    return original(*arguments) if own is None else own


def _has_overrides(arguments: Iterable[Any]) -> bool | None:
    """Whether others than the recorder override functions of these arguments; None if one of PyTorch's asks."""
    asker = _asker()
    if asker is None:
        return None
    if asker.f_globals.get("__name__") not in _MODULES and kind_of(asker.f_code) is not CodeKind.USER:
        return None
    modes = [get_function_stack_at(index) for index in range(len_torch_function_stack())]
    if is_torch_function_enabled() and not all(isinstance(mode, RecordingMode) for mode in modes):
        return True
    return any(map(_overrides, arguments))


def _overrides(value: Any) -> bool:
    if type(value) is torch.Tensor or not is_torch_function_enabled():
        return False
    disabled = disabled_torch_function_impl
    return getattr(type(value), "__torch_function__", disabled) is not disabled


def is_compiling(recorder: Recorder, original: Callable[[], bool]) -> bool:
    """`torch.compiler.is_compiling`; False if an attention module or an optimizer asks."""
    return not _is_asked_by(_NOT_COMPILING) and original()


def is_left_aligned(
    recorder: Recorder, original: Callable[..., bool], tensor: torch.Tensor, mask: torch.Tensor
) -> bool:
    """True if an encoder asks: then it goes on to `without_padding`, or does not care."""
    return _is_asked_by(_MODULES) or original(tensor, mask)


def without_padding(
    recorder: Recorder,
    original: Callable[..., torch.Tensor],
    tensor: torch.Tensor,
    mask: torch.Tensor,
    mask_check: bool = True,
) -> torch.Tensor:
    """`torch._nested_tensor_from_mask`; not if an encoder asks."""
    if _is_asked_by(_MODULES):
        raise _LeavesOutPadding
    return original(tensor, mask, mask_check)


def is_causal_mask(
    recorder: Recorder,
    original: Callable[..., bool],
    mask: torch.Tensor | None,
    is_causal: bool | None = None,
    size: int | None = None,
) -> bool:
    """`torch.nn.modules.transformer._detect_is_causal_mask`; False of a mask that is known only when the program runs.

    The answer is a hint that chooses a kernel. Without it the mask is applied as it is, to the same effect.
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
    """The forward of an encoder, recorded as its lines or, where it leaves out padding, as one."""
    try:
        return original(module, src, *args, **kwargs)
    except _LeavesOutPadding:
        with recorder.suspension, DisableTorchFunction():
            return _record(recorder, (module, src, *args), kwargs)


def _is_asked_by(modules: Collection[str]) -> bool:
    """Whether what calls Thunder here is of these modules."""
    asker = _asker()
    return asker is not None and asker.f_globals.get("__name__") in modules


def _asker() -> FrameType | None:
    """The innermost frame that is not of Thunder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_of_thunder(frame.f_code):
        frame = frame.f_back
    return frame


def _record(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    call = Call(recorder.inputs, args, kwargs)
    try:  # without a mask nothing is left out, and the result looks the same; padding is filled in memory of its own
        outcome, fakes = recorder.infer(_ENCODER, args[:2], {}, ())
    except data_dependence.EXCEPTIONS as error:
        raise data_dependence.error(_ENCODER, call.variables, user_location(), error) from error
    symbol = _RECORDED_ENCODER if any(result.requires_grad for result in outcome.results) else _ENCODER
    with recorder.tensors.fake_mode.observing():  # filled up it is contiguous, whatever the layers make of strides
        fakes = [fake.contiguous() for fake in fakes]
    pairs = zip(outcome.results, fakes, strict=True)
    outcome = replace(
        outcome, results=tuple([replace(old, stride=from_fake(new.stride()), offset=0) for old, new in pairs])
    )
    return record_checked(recorder, symbol, call, outcome, fakes)
