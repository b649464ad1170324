"""Collectives of Python objects, recorded as ops that send the objects at each call of the program.

The received objects are not available while the program is recorded. The program may store and return them. If it reads
one, eager PyTorch runs the call, on all ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from types import FrameType
from typing import Any, Final, NoReturn

import torch

from thunder_core.errors import DataDependentError, RunEagerly, UnsupportedError
from thunder_core.ir.effects import Effects
from thunder_core.ir.location import SourceLocation, at
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import peek_interpreter_stack, register_pytree_node
from thunder_core.symbols.channels import ranks_of
from thunder_core.tracing.frames import is_of_thunder, user_location
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.recorder import Recorder, active_recorder
from thunder_frontend.record.subclasses import has_torch_dispatch
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_plugin_distributed.recording.operations import EXCHANGE_OBJECTS

ONE_SIDED: Final = frozenset({"send", "recv", "send_object_list", "recv_object_list"})
"""Communication of two ranks, which others do not take part in."""
_SENDS: Final = (type(None), bool, int, float, complex, str, TracedNumber, TracedSize, torch.dtype, torch.device)


class EagerOnAllRanks(RunEagerly):
    """A call has to run in eager PyTorch although the program communicates: on all ranks, as no rank waits for it then.

    Attributes:
        groups: ranks of the process groups in which the program communicates, by name.
    """

    def __init__(self, reason: str, groups: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__(reason, expected=True)
        self.groups = groups


def _refuse_read(collective: str) -> NoReturn:
    recorder = None if collective in ONE_SIDED else active_recorder()
    _run_eagerly(recorder, f"the program reads an object that {collective} received", user_location())


def _run_eagerly(recorder: Recorder | None, reason: str, location: SourceLocation | None) -> NoReturn:
    """Have all ranks run the call in eager PyTorch.

    Args:
        recorder: that of the program; None if the object is not of a collective, so that the rank which sends it does
            not wait for others.

    Raises:
        EagerOnAllRanks: the ranks wait for each other.
        DataDependentError: they do not.
    """
    if recorder is None:
        raise DataDependentError(
            f"{reason}: it is not known while the program is recorded",
            location=location,
            advice=(
                "return it from the compiled function and read it outside",
                "or call the function that receives it outside of the compiled function",
            ),
        )
    names = {group for op in recorder.trace.all_ops() for group in op.effects.groups}
    raise EagerOnAllRanks(f"{reason}{at(location)}", {name: ranks_of(name) for name in sorted(names)})


def check(recorder: Recorder, observer: Observer) -> None:
    """Refuse a program that may behave differently for a placeholder than for the object that it replaces.

    Python reads ``type(x)``, ``callable(x)`` and ``x is True`` without calling a method of ``x``.

    Raises:
        EagerOnAllRanks, DataDependentError: the program received objects, and a function of the user's code does one of
            these.
    """
    received = {op.args[0] for op in recorder.trace.ops if op.symbol is EXCHANGE_OBJECTS and op.output}
    location = observer.code_by_types() if received else None
    if location is not None:
        reason = "a program that receives objects from other ranks reads types, or compares objects by `is`"
        _run_eagerly(None if received <= ONE_SIDED else recorder, reason, location)


class ReceivedObject:
    """A placeholder for an object that another rank sends."""

    __slots__ = ("_collective",)

    def __init__(self, collective: str) -> None:
        object.__setattr__(self, "_collective", collective)

    @property
    def __class__(self) -> Any:
        if _is_read_by_thunder():
            return ReceivedObject
        _refuse_read(object.__getattribute__(self, "_collective"))

    @__class__.setter
    def __class__(self, value: Any) -> None:
        _refuse_read(object.__getattribute__(self, "_collective"))

    def __getattr__(self, name: str) -> Any:
        if _is_read_by_thunder():
            raise AttributeError(name)
        _refuse_read(object.__getattribute__(self, "_collective"))


def _is_read_by_thunder() -> bool:
    """Whether the caller of the calling method is Thunder, not the program."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__instancecheck__":  # of a metaclass
        frame = frame.f_back
    return frame is not None and is_of_thunder(frame.f_code)


def _reads(self: ReceivedObject, *args: Any, **kwargs: Any) -> Any:
    _refuse_read(object.__getattribute__(self, "_collective"))


for _name in (
    *("bool", "len", "iter", "next", "contains", "getitem", "setitem", "delitem", "call", "str", "repr", "format"),
    *("hash", "eq", "ne", "lt", "le", "gt", "ge", "int", "float", "index", "complex", "abs", "neg", "pos", "invert"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *("pow", "rpow", "matmul", "rmatmul", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rshift", "divmod"),
    *("enter", "exit", "reduce_ex", "reduce", "copy", "deepcopy", "setattr", "delattr", "dir", "bytes", "round"),
):
    setattr(ReceivedObject, f"__{_name}__", _reads)


def _flatten(value: ReceivedObject) -> NoReturn:
    _refuse_read(object.__getattribute__(value, "_collective"))


# pytree reads the type of each object; one that it does not know would be a leaf
register_pytree_node(ReceivedObject, _flatten, lambda values, context: None)


def handlers() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """The functions that are intercepted: their modules, names and handlers."""
    for name in _HANDLERS:
        for owner in (torch.distributed, torch.distributed.distributed_c10d):
            yield owner, name, partial(_record, name)


def _record(name: str, recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The interception of a collective of objects.

    Raises:
        UnsupportedError: it sends an object that is neither a number, a text, a tensor without gradient, nor a
            container of these, or receives from any rank.
    """
    given = signature(getattr(torch.distributed, name)).bind(*args, **kwargs)
    given.apply_defaults()
    values = given.arguments
    group = values["group"] or torch.distributed.group.WORLD
    if torch.distributed.get_rank(group) < 0:
        return None
    return _HANDLERS[name](partial(_exchange, recorder, name, group), group, values)


def _exchange(
    recorder: Recorder,
    name: str,
    group: Any,
    sent: Sequence[Any],
    received: int,
    peer: int | None = None,
    device: torch.device | None = None,
) -> list[ReceivedObject]:
    if recorder.trace.outer_ops or peek_interpreter_stack() is not None:
        raise UnsupportedError(
            f"{name} is called in a checkpoint region, or under a transformation of torch.func",
            location=user_location(),
            advice=("call it outside of the region or the transformation", "or outside of the compiled function"),
        )
    for leaf in iterate_leaves(list(sent)):
        _check(name, leaf)
    call = CallArguments(recorder.inputs, (list(sent),), {}, numbers=(bool, int, float))
    objects = [ReceivedObject(name) for _ in range(received)]
    proxies = [OpaqueProxy(recorder.trace.names.intermediate(), "object") for _ in objects]
    arguments = (name, group.group_name, *call.args, received, peer, None if device is None else torch.device(device))
    output = tuple(proxies)
    recorder.trace.write(EXCHANGE_OBJECTS, arguments, {}, output, Effects(channels=(group.group_name,)))
    for value, proxy in zip(objects, proxies, strict=True):
        recorder.inputs.bind(value, proxy, returnable=True)
    return objects


def _check(name: str, leaf: Any) -> None:
    if isinstance(leaf, torch.Tensor):
        if not leaf.requires_grad and not has_torch_dispatch(type(leaf)):
            return
        problem, advice = "a tensor that requires grad, or one of a tensor subclass", "send tensor.detach()"
    elif type(leaf) in _SENDS:
        return
    else:
        problem, advice = (
            f"an object of {type(leaf).__qualname__}",
            "send numbers, texts and tensors, in lists or dicts",
        )
    raise UnsupportedError(
        f"{name} inside a compiled function sends {problem}",
        location=user_location(),
        advice=(advice, "call it outside of the compiled function"),
    )


def _peer(group: Any, values: dict[str, Any], name: str) -> int:
    """The rank within the group of the argument ``src`` or ``dst``; the first rank by default."""
    of_group = values[f"group_{name}"]
    if of_group is not None:
        return int(of_group)
    return int(torch.distributed.get_group_rank(group, values[name] or 0))


def _all_gather(exchange: Callable[..., Any], group: Any, values: dict[str, Any]) -> None:
    values["object_list"][:] = _filled(values["object_list"], exchange([values["obj"]], group.size()))


def _gather(exchange: Callable[..., Any], group: Any, values: dict[str, Any]) -> None:
    peer = _peer(group, values, "dst")
    receives = group.size() if group.rank() == peer else 0
    objects = exchange([values["obj"]], receives, peer)
    if receives:
        values["object_gather_list"][:] = _filled(values["object_gather_list"], objects)


def _broadcast(exchange: Callable[..., Any], group: Any, values: dict[str, Any]) -> None:
    peer, objects = _peer(group, values, "src"), values["object_list"]
    if group.rank() == peer:
        exchange(objects, 0, peer, values["device"])
    else:
        objects[:] = exchange([], len(objects), peer, values["device"])


def _scatter(exchange: Callable[..., Any], group: Any, values: dict[str, Any]) -> None:
    peer = _peer(group, values, "src")
    sent = values["scatter_object_input_list"] if group.rank() == peer else ()
    (values["scatter_object_output_list"][0],) = exchange(sent, 1, peer)


def _send(exchange: Callable[..., Any], group: Any, values: dict[str, Any]) -> None:
    exchange(values["object_list"], 0, _peer(group, values, "dst"), values["device"])


def _receive(exchange: Callable[..., Any], group: Any, values: dict[str, Any]) -> int:
    if values["src"] is None and values["group_src"] is None:
        raise UnsupportedError(
            "recv_object_list inside a compiled function receives from any rank",
            location=user_location(),
            advice=("name the rank: src=0", "call it outside of the compiled function"),
        )
    peer, objects = _peer(group, values, "src"), values["object_list"]
    objects[:] = exchange([], len(objects), peer, values["device"])
    return int(torch.distributed.get_global_rank(group, peer))


def _filled(objects: list[Any], received: list[Any]) -> list[Any]:
    """``objects`` with its first items replaced by the received objects, as in PyTorch."""
    return [*received, *objects[len(received) :]]


_HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    "all_gather_object": _all_gather,
    "gather_object": _gather,
    "broadcast_object_list": _broadcast,
    "scatter_object_list": _scatter,
    "send_object_list": _send,
    "recv_object_list": _receive,
}
