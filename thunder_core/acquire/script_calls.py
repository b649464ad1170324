"""Calls of programs in TorchScript: functions and methods that `torch.jit.script` and `torch.jit.trace` make.

PyTorch runs them in C++. While a program is recorded their graphs run on the program's values instead
(`thunder_core.acquire.script_graph`): what they call becomes lines, what they decide a check, and what they read of
modules a guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.script_graph import ScriptGraph
from thunder_core.acquire.script_operators import refuse
from thunder_core.errors import UnsupportedError
from thunder_core.guards.conditions import identity_check
from thunder_core.guards.plain import is_plain
from thunder_core.guards.source import Source
from thunder_core.guards.steps import AttributeSource
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes, state_of_script
from thunder_core.tracing.user_frames import user_location

_ATTRIBUTES: Final = "attributes of modules of TorchScript"
_COPIES: Final = "attributes of modules of TorchScript when they were read"


def call_function(recorder: Recorder, original: Callable[..., Any], function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of the call of a `torch.jit.ScriptFunction`."""
    observer = recorder.mode.observer
    source = observer.path_to(function)
    if source is not None:
        observer.add_guard(identity_check(source, function))
    given = _arguments(function.schema, args, kwargs, lambda: original(function, *args, **kwargs))
    return _run(recorder, function.inlined_graph, given)


def call_method(recorder: Recorder, original: Callable[..., Any], method: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of the call of a method of a `torch.jit.ScriptModule`.

    Raises:
        UnsupportedError: no path leads to the module.
    """
    owner = method.owner
    found = recorder.mode.observer.met_module(
        lambda module: isinstance(module, torch.jit.ScriptModule) and state_of_script(module) == owner
    )
    if found is None:
        raise refuse("is a method of a module to which no path leads")
    given = _arguments(method.schema, (owner, *args), kwargs, lambda: original(method, *args, **kwargs))
    return _run(recorder, method.inlined_graph, [_Module(*found), *given[1:]])


def assign(recorder: Recorder, original: Callable[..., Any], module: Any, name: str, value: Any, /) -> None:
    """The interception of an assignment to an attribute of a `torch.jit.ScriptModule`.

    Raises:
        UnsupportedError: the attribute is one of TorchScript's, which C++ holds.
    """
    if not vars(module).get("_initializing", True) and state_of_script(module).hasattr(name):
        raise UnsupportedError(
            f"the program assigns to the attribute `{name}` of a ScriptModule",
            location=user_location(),
            advice=("do this outside of the compiled function", "or write into a buffer in place"),
        )
    original(module, name, value)


@dataclass(frozen=True)
class _Module:
    """A module in the values of a graph, and the path to it."""

    module: Any
    source: Source


def _run(recorder: Recorder, graph: Any, args: list[Any]) -> Any:
    known: dict[tuple[int, str], Any] = recorder.notes.setdefault(_ATTRIBUTES, {})
    copies: dict[int, Any] = recorder.notes.setdefault(_COPIES, {})

    def attribute(owner: _Module, name: str) -> Any:
        key = id(owner.module), name
        if key not in known:
            value = known[key] = _attribute(recorder.mode.observer, owner, name)
            copies[id(value)] = _copy(value)
        return known[key]

    result = ScriptGraph(attribute).run(graph, args)
    for (_, name), value in known.items():
        if isinstance(value, list | dict) and not _is_as(value, copies[id(value)]):
            raise refuse(f"changes the attribute `{name}` of a module")
    return result


def _attribute(observer: Any, owner: _Module, name: str) -> Any:
    """What a module holds, guarded."""
    module = owner.module
    with disable_current_modes(), DisableTorchFunction():
        value = getattr(module, name)
    source = AttributeSource(owner.source, name)
    if isinstance(value, torch.nn.Module):
        known = observer.met_module(lambda other: other is value)
        return _Module(value, source if known is None else known[1])
    if not _is_data(value):
        raise refuse(f"reads the attribute `{name}` of a module, a {type(value).__name__}")
    observer.met(value, source)
    return value


def _is_data(value: Any) -> bool:
    """Whether a value is a tensor, plain, or a container of these."""
    if type(value) in (list, tuple):
        return all(map(_is_data, value))
    if type(value) is dict:
        return all(map(_is_data, value.values()))
    return isinstance(value, torch.Tensor) or is_plain(value)


def _arguments(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], fail: Callable[[], Any]) -> list[Any]:
    """The arguments in the order of the schema, as TorchScript takes them: lists and dictionaries are copies.

    Args:
        fail: the call itself, for an error as eager raises it.
    """
    given: list[Any] = []
    rest = dict(kwargs)
    if len(args) > len(schema.arguments):
        _fail(fail)
    for index, argument in enumerate(schema.arguments):
        if index < len(args):
            value = args[index]
        elif argument.name in rest:
            value = rest.pop(argument.name)
        elif argument.has_default_value():
            value = argument.default_value
        else:
            _fail(fail)
        given.append(_converted(argument, value, fail))
    if rest:
        _fail(fail)
    return given


def _converted(argument: Any, value: Any, fail: Callable[[], Any]) -> Any:
    kind = str(argument.type)
    if kind == "Tensor" and not isinstance(value, torch.Tensor):
        _fail(fail)
    if kind == "float" and isinstance(value, int):
        return float(value)
    return _copy(value)


def _copy(value: Any) -> Any:
    if type(value) is list:
        return list(map(_copy, value))
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return value


def _is_as(value: Any, before: Any) -> bool:
    """Whether a list or a dictionary holds the very same tensors, and equal data, as its copy."""
    if type(value) is list:
        return len(value) == len(before) and all(map(_is_as, value, before))
    if type(value) is dict:
        return list(value) == list(before) and all(map(_is_as, value.values(), before.values()))
    return value is before or (not isinstance(value, torch.Tensor) and bool(value == before))


def _fail(call: Callable[[], Any]) -> None:
    """Raise what PyTorch raises for arguments that do not fit.

    Raises:
        Exception: the error.
    """
    with disable_current_modes(), DisableTorchFunction():
        call()
    raise refuse("is called with arguments that do not fit its schema")
