"""Functions that create arrays: they get no array of the program, so NumPy does not pass their calls to the tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import torch

from thunder_frontend.record.interception import Interception, replacement_of
from thunder_frontend.record.recorder import Recorder, active_recorder
from thunder_plugin_numpy.callers import function_called_by_user
from thunder_plugin_numpy.dtypes import is_covered, torch_dtype
from thunder_plugin_numpy.operands import holds_traced, is_traced, tensor_of
from thunder_plugin_numpy.traced_array import TracedArray, cast

_AS_TENSOR: Final = torch.as_tensor  # the attribute is another function while a program is recorded
recording: Final[ContextVar[bool]] = ContextVar("a program on arrays is recorded", default=False)


def _recorder() -> Recorder | None:
    """The recorder of a program on arrays; None while another program is recorded, and outside of recordings."""
    return active_recorder() if recording.get() else None


def _recorder_of_call() -> Recorder | None:
    """As `_recorder`, if the user's code calls the function, and not code of NumPy."""
    recorder = _recorder()
    if recorder is None:
        return None
    called = function_called_by_user(2)
    return recorder if any(called is each for each in _functions()) else None


@functools.cache
def _functions() -> tuple[Any, ...]:
    """The intercepted functions of NumPy, and their replacements."""
    rows = [row for row in ROWS if row.owner is np]
    return (*[replacement_of(row) for row in rows], *[_ORIGINALS[row.name] for row in rows])


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple([each.__index__() for each in (shape if isinstance(shape, tuple | list) else (shape,))])


def _filled(
    recorder: Recorder, original: Callable[..., Any], /, shape: Any, dtype: Any = float, order: str = "C", **rest: Any
) -> Any:
    wanted = np.dtype(dtype if dtype is not None else float)
    if rest or order != "C" or not is_covered(wanted):
        return original(shape, dtype, order, **rest)
    value = 1 if original.__name__ == "ones" else 0
    return TracedArray(torch.full(_sizes(shape), value, dtype=torch_dtype(wanted)))


def _full(
    recorder: Recorder,
    original: Callable[..., Any],
    /,
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    **rest: Any,
) -> Any:
    value = fill_value if is_traced(fill_value) else np.asarray(fill_value, dtype)
    wanted = np.dtype(value.dtype if dtype is None else dtype)
    if rest or order != "C" or not is_covered(wanted):
        return original(shape, fill_value, dtype, order, **rest)
    return TracedArray(cast(tensor_of(value), torch_dtype(wanted)).expand(_sizes(shape)).clone())


def _array(
    recorder: Recorder, original: Callable[..., Any], /, object: Any = None, dtype: Any = None, **rest: Any
) -> Any:
    copies = original.__name__ == "array" and rest.pop("copy", True) is True
    if not holds_traced(object):
        if copies:
            rest["copy"] = True
        made = original(object, dtype, **rest)
        fresh = copies or not isinstance(object, np.ndarray)
        return TracedArray(tensor_of(made)) if fresh and type(made) is np.ndarray and is_covered(made.dtype) else made
    tensor = tensor_of(object)
    wanted = tensor.dtype if dtype is None else torch_dtype(dtype)
    minimum = rest.pop("ndmin", 0)
    contiguous = original.__name__ == "ascontiguousarray"
    if is_traced(object) and not copies and wanted == tensor.dtype and not object.is_scalar:
        if not contiguous or (tensor.ndim and tensor.is_contiguous()):
            return object
        minimum = 1
    result = cast(tensor, wanted)
    result = result.clone() if copies and result is tensor else result
    while result.ndim < minimum:
        result = result[None]
    return TracedArray(result.contiguous() if contiguous else result)


def _constant(recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A function of plain values: NumPy computes its array once."""
    args = tuple([each.item() if is_traced(each) else each for each in args])
    kwargs = {key: each.item() if is_traced(each) else each for key, each in kwargs.items()}
    made = original(*args, **kwargs)
    return TracedArray(tensor_of(made)) if type(made) is np.ndarray and is_covered(made.dtype) else made


def _as_tensor(recorder: Recorder, original: Callable[..., Any], /, data: Any, *args: Any, **kwargs: Any) -> Any:
    """A tensor of PyTorch from an array of the program: it shares the memory, except by `torch.tensor`."""
    if not is_traced(data):
        return original(data, *args, **kwargs)
    if original.__name__ == "tensor":  # it copies
        return _AS_TENSOR(data.tensor.clone(), *args, **kwargs)
    return original(data.tensor, *args, **kwargs)


_WHY: Final = "the array may be written to, and belongs to the program"
ROWS: Final = (
    *[Interception(np, name, _filled, _WHY, when=_recorder_of_call) for name in ("zeros", "ones", "empty")],
    Interception(np, "full", _full, _WHY, when=_recorder_of_call),
    *[
        Interception(np, name, _array, _WHY, when=_recorder_of_call)
        for name in ("array", "asarray", "asanyarray", "ascontiguousarray")
    ],
    *[
        Interception(np, name, _constant, _WHY, when=_recorder_of_call)
        for name in ("arange", "linspace", "eye", "identity", "tri", "logspace")
    ],
    *[
        Interception(torch, name, _as_tensor, "the tensor shares the memory of an array of the program", when=_recorder)
        for name in ("as_tensor", "asarray", "tensor")
    ],
)
"""The intercepted functions. Other programs than those of this front end call NumPy's."""
_ORIGINALS: Final = {row.name: getattr(np, row.name) for row in ROWS if row.owner is np}
