"""Submodules whose program depends on values, but whose results' shapes do not: the trace calls them as eager does.

The router of a mixture of experts is the usual case: ``torch.where(mask)`` has as many rows as an expert gets tokens,
and the sum over the experts has the shape of the input again. When recording such a submodule fails, the program is
recorded again with one line for each call of it. The submodule then runs as the user wrote it, with its own parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch

from thunder_core.acquire import data_dependence
from thunder_core.acquire.arguments import Call
from thunder_core.acquire.attempt import Key, key_of
from thunder_core.acquire.probe import record_sampled
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.value_request import Declined, ValueRequest
from thunder_core.ir.effects import Effects
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.control_flow import CALL_MODULE
from thunder_core.tracing.user_frames import user_location


def module_to_blame(error: BaseException, root: Callable[..., Any], known: frozenset[Key]) -> torch.nn.Module | None:
    """The innermost module in whose ``forward`` an error came up.

    Never the whole program, unless it is one of PyTorch's layers: normalization with a cumulative average, say.
    """
    found: torch.nn.Module | None = None
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
        if isinstance(module, torch.nn.Module) and key_of(module) not in known and _is_part(module, root):
            found = module
        traceback = traceback.tb_next
    return found


def _is_part(module: torch.nn.Module, root: Callable[..., Any]) -> bool:
    """Whether a module is not the whole program, or a layer of PyTorch's, without others inside."""
    return module is not root or (isinstance(key_of(module), int) and not any(module.children()))


def call_eagerly(recorder: Recorder, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record one call of a module as one line.

    Raises:
        DataDependentError: the metadata of its result depends on values, or cannot be tried.
    """
    with recorder.suspension, DisableTorchFunction():
        return _record(recorder, module, args, kwargs)


def _record(recorder: Recorder, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    cause = data_dependence.ValueNeeded(type(module).__qualname__)
    call = Call(recorder.inputs, args, kwargs)
    if not call.foldable:  # other objects may be written; they cannot be tried on a copy
        raise data_dependence.error(CALL_MODULE, call.variables, None, cause)
    args = (module, *args)
    duplicate: list[torch.nn.Module] = []

    def try_copy(_module: Any, *tried: Any, **named: Any) -> Any:
        if not duplicate:
            duplicate.append(copy.deepcopy(module))
        return duplicate[0](*tried, **named)

    first = len(recorder.trace.lines)
    request = ValueRequest(CALL_MODULE, args, kwargs, Call(recorder.inputs, args, kwargs), cause)
    answer = record_sampled(recorder, request, try_copy)
    if isinstance(answer, Declined):
        cause.add_note(answer.reason)
        raise data_dependence.error(CALL_MODULE, call.variables, user_location(), cause) from cause
    recorder.trace.lines[first] = replace(recorder.trace.lines[first], effects=Effects(random=True, external=True))
    return answer.result
