"""Updates of PyTorch's optimizers that depend on values: the trace calls their functional forms as eager does.

``step`` of an optimizer creates and looks up its state in Python, which is recorded, and hands lists of tensors to a
function, `torch.optim.adam.adam` for example. Many of these functions compute Python numbers from the counters of steps
or from a learning rate in a tensor. When recording such a function fails, the program is recorded again with one line
for each call of it: a line without a result, which writes the parameters and their state in place.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import CodeType, TracebackType
from typing import Any, Final

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.recorder import Recorder
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.opaque import OPAQUE

# Modules of `torch.optim` with a function of the same name that takes ``params, grads, ...``, and returns nothing. It
# writes parameters and state in place; gradients it only reads.
_MODULES: Final = (
    "adadelta",
    "_adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "_muon",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
)


def _functions() -> Iterator[tuple[Any, str, Callable[..., None]]]:
    """The functions of the installed PyTorch, with their module and name."""
    for name in _MODULES:
        module = sys.modules.get(f"torch.optim.{name}")
        function = getattr(module, name.lstrip("_"), None)
        if function is not None:
            yield module, name.lstrip("_"), function


OPTIMIZERS: Final = frozenset({"torch.optim.optimizer", *(f"torch.optim.{name}" for name in _MODULES)})
UPDATES: Final = tuple(_functions())
_CODES: Final[dict[CodeType, Callable[..., None]]] = {
    inspect.unwrap(function).__code__: function for _, _, function in UPDATES
}
_SYMBOLS: Final = {
    function: Symbol(f"{module.__name__}.{name}", function, tags=OPAQUE) for module, name, function in UPDATES
}


def update_to_blame(error: BaseException, known: frozenset[Any]) -> Callable[..., None] | None:
    """The function of an optimizer in which an error came up, if it has not been recorded as one line already."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        update = _CODES.get(traceback.tb_frame.f_code)
        if update is not None and update not in known:
            return update
        traceback = traceback.tb_next
    return None


def is_one_line(update: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call does nothing but write the tensors that it takes.

    With ``differentiable`` autograd records what it does. The first update with momentum of
    `torch.optim.SGD` puts tensors that it makes into a list that it takes.
    """
    if kwargs.get("differentiable"):
        return False
    return not kwargs.get("momentum") or None not in list(iterate_leaves(args))


def record_update(
    recorder: Recorder, update: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record one call of a function of an optimizer as one line."""
    with recorder.suspension, DisableTorchFunction():
        _record(recorder, _SYMBOLS[update], args, kwargs)


def _record(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = Call(recorder.inputs, args, kwargs)
    outcome, fakes = recorder.infer(replace(symbol, target=_write), args, kwargs, call.variables)
    recorder.writer.record(symbol, call, outcome, fakes, recorder.trace.context_of(symbol))


def _write(params: list[torch.Tensor], grads: list[torch.Tensor], *state: Any, **options: Any) -> None:
    """Write what an update writes: the tensors in all lists but the gradients. Options are read."""
    lists = [options.pop(name) for name in list(options) if isinstance(options[name], list)]
    for tensor in iterate_leaves((params, state, lists)):
        if isinstance(tensor, torch.Tensor) and tensor is not options.get("lr"):
            tensor.zero_()


def update(
    function: Callable[..., None], recorder: Recorder, original: Callable[..., None], /, *args: Any, **kwargs: Any
) -> None:
    """The interception of a function of an optimizer, one of `UPDATES`."""
    if function in recorder.attempt.eager_updates and is_one_line(function, args, kwargs):
        record_update(recorder, function, args, kwargs)
    else:
        original(*args, **kwargs)
