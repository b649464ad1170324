"""Functions of NumPy, other than universal functions, on arrays of the program: two tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from thunder_plugin_numpy import own_functions
from thunder_plugin_numpy.coverage import not_covered, numpy_errors, words
from thunder_plugin_numpy.creation import recording
from thunder_plugin_numpy.dtypes import NUMPY, TORCH, is_covered, torch_dtype
from thunder_plugin_numpy.operands import arrays_of, is_traced, new_copy, tensor_of
from thunder_plugin_numpy.pytorch_internals import LayerArray, torch_numpy
from thunder_plugin_numpy.traced_array import cast
from thunder_plugin_numpy.ufuncs import store

_PROBED: Final = words(
    """
    sum prod mean std var average max min amax amin ptp all any argmax argmin count_nonzero cumsum cumprod clip
    round around where sort argsort searchsorted diff convolve correlate concatenate stack vstack hstack dstack
    column_stack append inner dot vdot tensordot einsum trace isclose nan_to_num linalg.inv linalg.det
    linalg.cholesky linalg.solve linalg.norm linalg.matrix_power linalg.eigvalsh linalg.pinv fft.fft fft.ifft
    fft.rfft fft.fft2 fft.ifft2 fft.fftn fft.ifftn
    """
)
"""Functions of PyTorch's layer whose dtypes of results are those of NumPy for arrays of one element."""
_MOVING: Final = words(
    """
    reshape transpose swapaxes moveaxis expand_dims ravel broadcast_to broadcast_arrays flip fliplr flipud
    roll rot90 tile repeat split array_split hsplit vsplit dsplit diagonal diagflat tril triu take
    take_along_axis atleast_1d atleast_2d atleast_3d copy nonzero flatnonzero argwhere meshgrid real imag kron
    fft.fftshift fft.ifftshift allclose array_equal array_equiv shape ndim size iscomplexobj isrealobj linalg.eigh
    linalg.qr linalg.svd linalg.slogdet linalg.matrix_rank linalg.cond linalg.multi_dot
    cross gradient unique bincount isreal iscomplex
    """
)
"""Functions of PyTorch's layer whose results have NumPy's dtypes."""
LAYER: Final = _PROBED | _MOVING
_ARRAYS: Final = words(
    """
    reshape transpose swapaxes moveaxis tensordot expand_dims broadcast_to broadcast_arrays flip copy where roll ravel
    diagonal sort real imag
    """
)
"""Functions whose results without dimensions are arrays, not scalars."""
_VIEWS: Final = words(
    """
    transpose swapaxes moveaxis expand_dims diagonal broadcast_to broadcast_arrays flip fliplr flipud rot90
    split array_split hsplit vsplit dsplit atleast_1d atleast_2d atleast_3d
    """
)
"""Functions whose results are views of their argument in NumPy."""
_NOT_WRITABLE: Final = {
    **dict.fromkeys(("diagonal", "broadcast_to", "broadcast_arrays"), "NumPy makes read-only"),
    **dict.fromkeys(("flip", "fliplr", "flipud", "rot90"), "has negative strides in NumPy"),
}
_LISTS: Final = frozenset({"split", "array_split", "hsplit", "vsplit", "dsplit"})
_NAMED: Final = {
    f"linalg.{name}": type(getattr(np.linalg, name)(np.eye(1))) for name in ("slogdet", "eigh", "qr", "svd")
}
"""Classes of results that are named tuples."""
_ORDERING: Final = words(
    """
    max min amax amin argmax argmin ptp clip sort argsort searchsorted
    """
)
"""Functions that compare numbers, which PyTorch does not do for complex ones."""
_OF_VALUES: Final = frozenset({"unique", "nonzero", "flatnonzero", "argwhere", "bincount", "repeat"})
"""Functions whose results have shapes that depend on values."""
_LARGE: Final = 2**16
"""Elements of arrays for which NumPy does not run a call of `_check_shapes`."""
_BY_AXIS: Final = frozenset({"prod", "all", "any"})
"""Reductions that PyTorch's layer has for one axis."""


def _name(function: Any) -> str:
    """The name of a function below ``numpy``: ``linalg.norm``."""
    module = str(function.__module__).partition(".")[2]
    return f"{module}.{function.__name__}" if module else str(function.__name__)


def call_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function of NumPy with an array of the program among its arguments.

    Raises:
        UnsupportedError: the function or an option is not covered.
    """
    name = _name(function)
    own = own_functions.FUNCTIONS.get(name)
    if own is not None:
        return own(*args, **kwargs)
    if name not in LAYER:
        raise not_covered(f"numpy.{name} is not covered")
    out = kwargs.pop("out", None)
    args, kwargs, where_all = own_functions.masked(name, args, kwargs)
    if name in _ORDERING and args and is_traced(args[0]) and args[0].dtype.kind == "c":
        raise not_covered(f"numpy.{name} of complex numbers is not covered")
    if name == "clip":
        kwargs = {key.removeprefix("a_"): value for key, value in kwargs.items()}
    if name == "unique" and (kwargs.get("return_inverse") or len(args) > 1) and args[0].ndim != 1:
        raise not_covered("numpy.unique(return_inverse=True) of arrays with several dimensions is not covered")
    if name in ("tensordot", "einsum") and any(is_traced(value) and value.dtype.kind == "b" for value in args):
        raise not_covered(f"numpy.{name} of booleans is not covered")
    if name in _BY_AXIS and len(args) == 1 and isinstance(kwargs.get("axis"), tuple):
        found = _reduced_by_axis(function, args[0], **kwargs)
        if out is not None:
            store(out, found.tensor, name)
        return found if out is None else out
    expected = _dtype_of_result(function, args, kwargs) if name in _PROBED else None
    if name in ("cumsum", "cumprod") and expected is not None and is_covered(expected):
        args = (args[0].astype(expected), *args[1:])
    implementation = torch_numpy
    for part in name.split("."):
        implementation = getattr(implementation, part)
    try:
        with numpy_errors(name):
            result = implementation(*map(_to_layer, args), **{key: _to_layer(value) for key, value in kwargs.items()})
    except NotImplementedError as error:
        raise not_covered(f"numpy.{name} with these arguments is not covered: {error}") from error
    if expected is not None and isinstance(tensor := getattr(result, "tensor", None), torch.Tensor):
        if not is_covered(expected):
            raise not_covered(f"numpy.{name} returns {expected}, with which PyTorch does not compute")
        result = cast(tensor, TORCH[expected])
    result = arrays_of(result, scalars=name not in _ARRAYS)
    _check_shapes(result, function, name, args, kwargs)
    found = where_all(result)
    _as_in_numpy(found, name, [value.tensor for value in (*args, *kwargs.values()) if is_traced(value)])
    if name in _LISTS:
        found = list(found)
    elif name == "meshgrid":
        found = tuple(found)
    elif name in _NAMED and isinstance(found, tuple):
        found = _NAMED[name](*found)
    if out is None:
        return found
    store(out, tensor_of(found), name)
    return out


def _as_in_numpy(result: Any, name: str, operands: list[torch.Tensor]) -> None:
    """Let results share memory with arguments only where those of NumPy do, and be written only if NumPy allows it."""
    for array in result if isinstance(result, tuple | list) else (result,):
        if is_traced(array):
            array.copied = _NOT_WRITABLE.get(name, "")
            if name not in _VIEWS:
                array.tensor = new_copy(array.tensor, operands)


def _reduced_by_axis(function: Callable[..., Any], array: Any, *, axis: tuple[int, ...], **options: Any) -> Any:
    """A reduction over several axes, one after the other."""
    keeps = options.pop("keepdims", False)
    axes = sorted([each % array.ndim for each in axis], reverse=True)
    result = array
    for each in axes:
        result = function(result, axis=each, **options)
    return np.expand_dims(result, tuple(sorted(axes))) if keeps else result


def _dtype_of_result(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The dtype that NumPy returns for arrays of one element in place of those of the program; None for another
    result.
    """
    return getattr(_result_of_ones(function, _sample, args, kwargs), "dtype", None)


def _check_shapes(result: Any, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse a call for which PyTorch's layer returns other shapes than NumPy.

    NumPy runs it on arrays of ones, unless these are large, the shape depends on values, or it refuses ones.
    """
    if name in _OF_VALUES or (name == "where" and len(args) == 1):
        return
    expected = _result_of_ones(function, _ones, args, kwargs)
    if expected is not None and (actual := _shapes(result)) != (wanted := _shapes(expected)):
        raise not_covered(
            f"numpy.{name} with these arguments is not covered: PyTorch's layer returns shapes {actual}, not {wanted}"
        )


def _shapes(result: Any) -> Any:
    """The shapes of arrays in a result, nested as these are."""
    if isinstance(result, tuple | list):
        return [_shapes(item) for item in result]
    return tuple(result.shape) if is_traced(result) or isinstance(result, np.ndarray | np.generic) else None


def _ones(value: Any) -> Any:
    if is_traced(value):
        if any(type(size) is not int for size in value.shape) or value.size > _LARGE:
            raise ValueError
        return np.ones(value.shape, value.dtype)
    return type(value)(map(_ones, value)) if type(value) in (list, tuple) else value


def _result_of_ones(
    function: Callable[..., Any], ones: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What NumPy returns for ones in place of the arrays of the program; None if it raises an error."""
    token = recording.set(False)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*map(ones, args), **{key: ones(value) for key, value in kwargs.items()})
        except (ValueError, IndexError, np.linalg.LinAlgError):
            return None
        finally:
            recording.reset(token)


def _sample(value: Any) -> Any:
    if is_traced(value):
        return np.ones((1,) * value.ndim, value.dtype)
    if isinstance(value, np.ndarray):
        return np.ones((1,) * value.ndim, value.dtype)
    if type(value) in (list, tuple):
        return type(value)(map(_sample, value))
    return value


def _to_layer(value: Any) -> Any:
    """An argument as PyTorch's layer takes it."""
    if is_traced(value):
        return LayerArray(value.tensor)
    if isinstance(value, np.ndarray | np.generic):
        return LayerArray(tensor_of(value))
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return str(NUMPY[torch_dtype(value)])
    if type(value) in (list, tuple):
        return type(value)(map(_to_layer, value))
    return value
