"""Values of a program as tensors of the trace, and tensors as values of the program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch

from thunder_core.pytorch_internals import disable_current_modes
from thunder_frontend.record.recorder import Recorder, active_recorder
from thunder_frontend.record.traced_tensor import variable_of
from thunder_plugin_numpy.coverage import not_covered
from thunder_plugin_numpy.dtypes import is_covered
from thunder_plugin_numpy.traced_array import TracedArray

from_numpy: Final = torch.from_numpy
asarray: Final = np.asarray
"""The functions themselves: these attributes are others while a program is recorded."""


def is_traced(value: Any) -> bool:
    """Whether a value is an array of the compiled program; its ``__class__`` is another one."""
    return type(value) is TracedArray


def tensor_of(value: Any) -> torch.Tensor:
    """The tensor for an array, a scalar of Python or NumPy, or nested lists of them.

    An array that the program does not get as an argument is a constant, whose content is guarded.

    Raises:
        UnsupportedError: PyTorch does not compute with its dtype.
    """
    if is_traced(value):
        tensor: torch.Tensor = value.tensor
        return tensor
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, list | tuple) and holds_traced(value):
        return torch.stack(list(torch.broadcast_tensors(*_promoted([tensor_of(item) for item in value]))))
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return torch.tensor(value, dtype=_DTYPES[next(kind for kind in _DTYPES if isinstance(value, kind))])
    return _constant(asarray(value))


_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _promoted(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    from thunder_plugin_numpy.dtypes import NUMPY, torch_dtype

    common = torch_dtype(np.result_type(*[NUMPY[tensor.dtype] for tensor in tensors]))
    return [tensor.to(common) for tensor in tensors]


def _constant(array: np.ndarray) -> torch.Tensor:
    """A tensor of the trace with the content that an array has now."""
    if not is_covered(array.dtype):
        raise not_covered(f"an array of the dtype {array.dtype} is not covered")
    with disable_current_modes():
        tensor = from_numpy(array.copy("K") if min(array.strides, default=0) >= 0 else array.copy("C"))
    recorder = active_recorder()
    assert recorder is not None
    return recorder.inputs.constant(tensor)


def new_copy(result: torch.Tensor, operands: Iterable[torch.Tensor]) -> torch.Tensor:
    """``result``, copied if it shares memory with an operand: PyTorch returns ``x`` for ``+x``, and NumPy a copy."""
    recorder = active_recorder()
    assert recorder is not None
    storages = {_storage(recorder, operand) for operand in operands}
    return result.clone() if _storage(recorder, result) in storages else result


def _storage(recorder: Recorder, tensor: torch.Tensor) -> int:
    return (variable_of(tensor) or recorder.inputs.lift(tensor)).proxy.storage


def holds_traced(value: Any) -> bool:
    """Whether nested tuples, lists and dictionaries hold an array of the compiled program."""
    if type(value) in (tuple, list):
        return any(map(holds_traced, value))
    if type(value) is dict:
        return any(map(holds_traced, value.values()))
    return is_traced(value)


def arrays_of(result: Any, *, scalars: bool) -> Any:
    """The result of a function of PyTorch's layer: tensors and its arrays become arrays of the program.

    Args:
        scalars: whether results without dimensions are NumPy scalars.
    """
    tensor = getattr(result, "tensor", result) if not isinstance(result, torch.Tensor) else result
    if isinstance(tensor, torch.Tensor):
        return TracedArray(tensor, is_scalar=scalars and not tensor.ndim)
    if isinstance(result, tuple | list):
        items = [arrays_of(item, scalars=scalars) for item in result]
        return (
            items if isinstance(result, list) else type(result)(*items) if hasattr(result, "_fields") else tuple(items)
        )
    return result
