"""Calls that take programs: autograd.Function and checkpoint. They are recorded as one symbol, never flattened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.utils.checkpoint

from thunder_core.acquire import subclasses
from thunder_core.acquire.arguments import Call, convert
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.region_views import Results, ViewHistory, make_views_inside
from thunder_core.acquire.replaced_code import copy_of
from thunder_core.acquire.variable import Variable
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import current_context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.checkpointing import CHECKPOINT_WITH_WRITES
from thunder_core.symbols.opaque import callable_symbol
from thunder_core.tracing.user_frames import user_location

CHECKPOINT = Symbol(
    "torch.utils.checkpoint.checkpoint", torch.utils.checkpoint.checkpoint, tags=frozenset({Tag.HIGHER_ORDER})
)

# The descriptor of `torch.autograd.Function.apply`: a class method of Python up to PyTorch 2.13, whose code is replaced
# while a program is recorded, one of C since 2.14.
_HELD = vars(torch.autograd.Function)["apply"]
_APPLY = copy_of(_HELD)


def apply_of(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """PyTorch's ``cls.apply``, also while `torch.autograd.Function.apply` is replaced."""
    bound: Callable[..., Any] = _APPLY.__get__(None, cls)
    return bound


def is_apply(function: Any) -> bool:
    """Whether ``function`` is the ``apply`` of an autograd.Function."""
    cls = getattr(function, "__self__", None)
    if not isinstance(cls, type) or not issubclass(cls, torch.autograd.Function):
        return False
    return bool(function == _HELD.__get__(None, cls))


def autograd_function(
    recorder: Recorder, cls: type[torch.autograd.Function], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record ``cls.apply(...)`` as one symbol; its forward and backward run as the user wrote them.

    Raises:
        UnsupportedError: an argument is of a class with a ``__torch_function__``, which would act inside of both.
    """
    subclasses.refuse_classes(
        (args, kwargs),
        f"an argument of {cls.__qualname__}.apply",
        lambda tensor: subclasses.is_handed_calls(type(tensor)),
    )
    with DisableTorchFunction():
        return recorder.call_symbol(callable_symbol(apply_of(cls), "Function_apply"), args, kwargs)


def _fresh(recorder: Recorder, variable: Variable) -> TensorProxy:
    """A name for the value of ``variable`` outside of the region that computed it."""
    variable.proxy = replace(variable.proxy, name=recorder.names.intermediate())
    return variable.proxy


@contextmanager
def checkpoint_region(recorder: Recorder, options: dict[str, Any]) -> Iterator[None]:
    """Record what runs inside as the body of one checkpoint symbol; what stays alive is its output."""
    region = Region(recorder)
    with region.recording():
        yield
    emit_checkpoint(recorder, region, [recorder.variable(tensor) for tensor in region.live_tensors()], options)


def checkpoint(
    recorder: Recorder, function: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Run ``function`` as a reentrant checkpoint region and return its result.

    Without gradients for ``operands`` such a region has none at all, and PyTorch warns.
    """
    torch.utils.checkpoint.check_backward_validity(operands)
    if not any(isinstance(operand, torch.Tensor) and operand.requires_grad for operand in operands):
        with torch.no_grad():
            return function(*operands)
    with checkpoint_region(recorder, options):
        return function(*operands)


def emit_checkpoint(recorder: Recorder, region: Region, live: list[Variable], options: dict[str, Any]) -> None:
    """Append the checkpoint symbol for a finished region."""
    history = ViewHistory(recorder, region)
    region.restore_names()
    defined = region.defined()
    live = [variable for variable in dict.fromkeys(live) if variable.proxy.name in defined]
    results = Results(history, region, live, options["use_reentrant"])
    make_views_inside(history, region)
    free, effects = region.free(), region.effects()
    body = region.body("checkpoint_body", free, tuple(variable.proxy for variable in results.returned))
    output = tuple(_fresh(recorder, variable) for variable in results.returned)
    shown = recorder.own_context(current_context())
    recorded = convert(options, Call(recorder))  # a ``context_fn`` may be an object without a literal
    symbol = CHECKPOINT
    arguments: tuple[Any, ...] = (body, *free)
    if effects.mutates:
        places = tuple([place for place, proxy in enumerate(free) if proxy.name in effects.mutates])
        symbol, arguments = CHECKPOINT_WITH_WRITES, (body, places, *free)
    recorder.lines.append(BoundSymbol(symbol, arguments, recorded, output, effects, shown, user_location()))
    written = [proxy for proxy in free if isinstance(proxy, TensorProxy) and proxy.name in effects.mutates]
    recorder.follow_history({proxy.storage for proxy in written})
    for variable in results.views:
        _fresh(recorder, variable)
    recorder.lines += results.lines()
