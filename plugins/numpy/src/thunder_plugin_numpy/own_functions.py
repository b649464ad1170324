"""Functions of NumPy that PyTorch's layer lacks, or has with other results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from thunder_plugin_numpy.coverage import not_covered
from thunder_plugin_numpy.dtypes import NUMPY, torch_dtype
from thunder_plugin_numpy.operands import arrays_of, asarray, is_traced, tensor_of
from thunder_plugin_numpy.pytorch_internals import LayerArray, torch_numpy
from thunder_plugin_numpy.traced_array import TracedArray, cast

# ---------------------------------------------------------------- reductions with where= and initial=


_IDENTITY: Final = {"sum": 0, "prod": 1, "any": False, "all": True, "count_nonzero": 0}


def masked(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Callable[[Any], Any]]:
    """The arguments of a reduction without ``where`` and ``initial``, and a function that completes its result."""
    where, initial = kwargs.get("where", True), kwargs.get("initial")
    if (where is True and initial is None) or name not in (*_IDENTITY, "max", "min", "amax", "amin"):
        return args, kwargs, lambda result: result
    kwargs = {key: value for key, value in kwargs.items() if key not in ("where", "initial")}
    array = args[0] if is_traced(args[0]) else TracedArray(tensor_of(args[0]))
    if where is not True:
        fill = _IDENTITY.get(name, initial)
        if fill is None:
            raise ValueError(
                f"reduction operation {name!r} does not have an identity, so to use a where mask one has to specify "
                "'initial'"
            )
        array = np.where(where, array, array.dtype.type(fill))
    combine = {
        "sum": np.add,
        "prod": np.multiply,
        "max": np.maximum,
        "amax": np.maximum,
        "min": np.minimum,
        "amin": np.minimum,
    }
    if initial is None or name not in combine:
        return (array, *args[1:]), kwargs, lambda result: result
    return (array, *args[1:]), kwargs, lambda result: combine[name](result, initial)


# ---------------------------------------------------------------- creation


def like(fill: Callable[..., torch.Tensor]) -> Callable[..., TracedArray]:
    """A function that creates an array of the shape and dtype of another one."""

    def create(
        a: Any, *values: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **options: Any
    ) -> TracedArray:
        if order not in ("K", "C") or any(value is not None for value in options.values()):
            raise not_covered(f"numpy.*_like(order={order!r}) is not covered")
        tensor = tensor_of(a)
        if values and fill is not _filled:  # the dtype may be the second argument
            dtype, values = values[0], values[1:]
        wanted = tensor.dtype if dtype is None else torch_dtype(dtype)
        sizes = tensor.shape if shape is None else _sizes(shape)
        return TracedArray(fill(tensor, sizes, wanted, *values))

    return create


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, tuple | list) else (int(shape),)


def _filled(tensor: torch.Tensor, sizes: Any, dtype: torch.dtype, value: Any = None) -> torch.Tensor:
    return cast(tensor_of(value), dtype).expand(sizes).clone()


def _zeros(tensor: torch.Tensor, sizes: Any, dtype: torch.dtype) -> torch.Tensor:
    return (
        torch.zeros_like(tensor, dtype=dtype)
        if tuple(sizes) == tuple(tensor.shape)
        else torch.zeros(sizes, dtype=dtype)
    )


def _ones(tensor: torch.Tensor, sizes: Any, dtype: torch.dtype) -> torch.Tensor:
    return (
        torch.ones_like(tensor, dtype=dtype) if tuple(sizes) == tuple(tensor.shape) else torch.ones(sizes, dtype=dtype)
    )


# ---------------------------------------------------------------- functions that ignore NaN


def _without_nan(function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def ignoring(a: Any, axis: Any = None, **options: Any) -> Any:
        return function(_replaced(a, fill), axis=axis, **options)

    return ignoring


def _replaced(a: Any, fill: float) -> Any:
    array = TracedArray(tensor_of(a))
    return array if array.dtype.kind not in "fc" else np.where(np.isnan(array), array.dtype.type(fill), array)


def _extreme_without_nan(function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def ignoring(a: Any, axis: Any = None, **options: Any) -> Any:
        array = TracedArray(tensor_of(a))
        result = function(_replaced(array, fill), axis=axis, **options)
        if array.dtype.kind != "f":
            return result
        nothing = np.all(np.isnan(array), axis=axis, **{key: options[key] for key in ("keepdims",) if key in options})
        found = np.where(nothing, array.dtype.type(np.nan), result)
        return TracedArray(found.tensor, is_scalar=not found.ndim)

    return ignoring


def _nanmean(a: Any, axis: Any = None, **options: Any) -> Any:
    array = TracedArray(tensor_of(a))
    if array.dtype.kind not in "fc":
        return np.mean(array, axis=axis, **options)
    keep = {key: value for key, value in options.items() if key == "keepdims"}
    total = np.sum(_replaced(array, 0.0), axis=axis, **options)
    count = np.sum(~np.isnan(array), axis=axis, **keep)
    result = total / count.astype(total.real.dtype)
    return result.astype(total.dtype)


def _nanvar(a: Any, axis: Any = None, ddof: int = 0, **options: Any) -> Any:
    array = TracedArray(tensor_of(a))
    if array.dtype.kind != "f":
        return np.var(array, axis=axis, ddof=ddof, **options)
    mean = _nanmean(array, axis=axis, keepdims=True)
    squares = (array - mean) ** 2
    count = np.sum(~np.isnan(array), axis=axis, **options)
    return (np.nansum(squares, axis=axis, **options) / (count - ddof).astype(array.dtype)).astype(array.dtype)


# ---------------------------------------------------------------- others


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    from thunder_plugin_numpy.ufuncs import store

    store(dst, tensor_of(src), "copyto", where=where, casting=casting)


def _result_type(*values: Any) -> np.dtype[Any]:
    return np.result_type(*[value.dtype if is_traced(value) else value for value in values])


def _can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(from_.dtype if is_traced(from_) else from_, to.dtype if is_traced(to) else to, casting)


def _percentile(
    a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False, scale: float = 100.0
) -> Any:
    tensor = tensor_of(a)
    if (
        method not in ("linear", "lower", "higher", "midpoint", "nearest")
        or isinstance(axis, tuple | list)
        or tensor.is_complex()
    ):
        raise not_covered(
            f"numpy.percentile with method={method!r}, axis={axis} and {NUMPY[tensor.dtype]} is not covered"
        )
    if not tensor.is_floating_point():
        tensor = tensor.double()
    quantiles = tensor_of(q)
    if quantiles.ndim:  # their dtype takes part in the promotion
        tensor = tensor.double()
    quantiles = cast(quantiles, tensor.dtype) / scale
    result = torch.quantile(tensor, quantiles, dim=axis, keepdim=keepdims, interpolation=method)
    return TracedArray(result, is_scalar=not result.ndim)


def _quantile(a: Any, q: Any, axis: Any = None, **options: Any) -> Any:
    return _percentile(a, q, axis, scale=1.0, **options)


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = np.where(condition, choice, result)
    return result


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None:
        raise not_covered("numpy.interp(period=) is not covered")
    given, xs, ys = (cast(tensor_of(value), torch.float64) for value in (x, xp, fp))
    after = torch.searchsorted(xs, given.contiguous(), right=True).clamp(1, max(xs.shape[0] - 1, 1))
    if xs.shape[0] == 1:
        result = torch.where(given < xs[0], ys[0], ys[0])
    else:
        slope = (ys[after] - ys[after - 1]) / (xs[after] - xs[after - 1])
        result = ys[after - 1] + slope * (given - xs[after - 1])
    result = torch.where(given < xs[0], ys[0] if left is None else tensor_of(float(left)), result)
    result = torch.where(given >= xs[-1], ys[-1], result)
    if right is not None:
        result = torch.where(given > xs[-1], tensor_of(float(right)), result)
    return TracedArray(torch.where(torch.isnan(given), given, result), is_scalar=not result.ndim)


def _isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    tensor = tensor_of(element)
    if tensor.is_complex():
        raise not_covered("numpy.isin of complex numbers is not covered")
    found = torch.isin(tensor, tensor_of(test_elements), invert=invert)
    return TracedArray(found)


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges = tensor_of(bins)
    if bool((edges[1:] < edges[:-1]).any()):
        raise not_covered("numpy.digitize with decreasing bins is not covered")
    return np.searchsorted(TracedArray(edges), x, side="left" if right else "right")


def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    values = TracedArray(tensor_of(y))
    front = [slice(None)] * values.ndim
    back = list(front)
    front[axis], back[axis] = slice(1, None), slice(None, -1)
    if x is None:
        step: Any = dx
    else:
        points = TracedArray(tensor_of(x))
        step = np.diff(points) if points.ndim == 1 else np.diff(points, axis=axis)
        if points.ndim == 1 and values.ndim > 1:
            shape = [1] * values.ndim
            shape[axis] = step.shape[0]
            step = step.reshape(shape)
    return (step * (values[tuple(front)] + values[tuple(back)]) / 2.0).sum(axis)


def _polyval(p: Any, x: Any) -> Any:
    result: Any = np.zeros_like(x)
    for coefficient in p if is_traced(p) else asarray(p):
        result = result * x + coefficient
    return result


def _pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Any:
    tensor = tensor_of(array)
    widths = np.broadcast_to(asarray(pad_width, dtype=int), (tensor.ndim, 2)).tolist()
    value = options.pop("constant_values", 0)
    if options or not isinstance(value, bool | int | float | complex) or mode != "constant":
        raise not_covered(f"numpy.pad(mode={mode!r}) with these options is not covered")
    shape = [size + before + after for size, (before, after) in zip(tensor.shape, widths, strict=True)]
    result = torch.full(shape, value, dtype=tensor.dtype)
    place = tuple([slice(before, before + size) for size, (before, _) in zip(tensor.shape, widths, strict=True)])
    result[place] = tensor
    return TracedArray(result)


def _putmask(a: Any, mask: Any, values: Any) -> None:
    if tensor_of(values).ndim:
        raise not_covered("numpy.putmask with several values is not covered")
    _copyto(a, values, "unsafe", mask)


def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    if wrap or a.ndim != 2 or tensor_of(val).ndim:
        raise not_covered("numpy.fill_diagonal of other arrays than matrices, and with several values, is not covered")
    a.check_writable()
    a.tensor.diagonal().fill_(val if isinstance(val, bool | int | float | complex) else tensor_of(val))


def _diag(v: Any, k: int = 0) -> Any:
    tensor = tensor_of(v)
    if tensor.ndim not in (1, 2):
        raise ValueError("Input must be 1- or 2-d.")
    return np.diagonal(_array(v), k) if tensor.ndim == 2 else TracedArray(torch.diag(tensor, k))


def _squeeze(a: Any, axis: Any = None) -> TracedArray:
    array = _array(a)
    axes = range(array.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    chosen = [each % array.ndim for each in axes if axis is not None or array.shape[each] == 1]
    if any(array.shape[each] != 1 for each in chosen):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    index = tuple([0 if each in chosen else slice(None) for each in range(array.ndim)])
    return TracedArray(array.tensor[index], copied=array.copied)


def _outer(a: Any, b: Any, out: Any = None) -> Any:
    left, right = _array(a).ravel(), _array(b).ravel()
    return np.multiply(left[:, None], right, out=out)


def _angle(z: Any, deg: bool = False) -> Any:
    array = _array(z)
    array = array if array.dtype.kind in "fc" else array.astype(np.float64)
    result = np.arctan2(array.imag, array.real)
    return result * (180 / np.pi) if deg else result


def _in_double(name: str) -> Callable[..., Any]:
    """A function of PyTorch's layer that NumPy computes in double precision at least."""

    def call(m: Any, *args: Any, **kwargs: Any) -> Any:
        array = _array(m)
        given = array.astype(np.result_type(array.dtype, np.float64))
        if not kwargs.pop("rowvar", True) and array.ndim == 2:
            given = given.T
        if any(value is not None and not isinstance(value, bool | int) for value in (*args, *kwargs.values())):
            raise not_covered(f"numpy.{name} with these arguments is not covered")
        return arrays_of(getattr(torch_numpy, name)(LayerArray(given.tensor), *args, **kwargs), scalars=True)

    return call


def _irfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    if out is not None:
        raise not_covered("numpy.fft.irfft(out=) is not covered")
    tensor = tensor_of(a)
    single = tensor.dtype in (torch.float32, torch.complex64)
    given = tensor.to(torch.complex64 if single else torch.complex128)
    return TracedArray(torch.fft.irfft(given, n, axis, norm))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "zeros_like": like(_zeros),
    "ones_like": like(_ones),
    "empty_like": like(_zeros),
    "full_like": like(_filled),
    "nansum": _without_nan(np.sum, 0.0),
    "nanprod": _without_nan(np.prod, 1.0),
    "nanmax": _extreme_without_nan(np.max, -np.inf),
    "nanmin": _extreme_without_nan(np.min, np.inf),
    "nanmean": _nanmean,
    "nanvar": _nanvar,
    "nanstd": lambda a, axis=None, **options: np.sqrt(_nanvar(a, axis, **options)),
    "copyto": _copyto,
    "putmask": _putmask,
    "fill_diagonal": _fill_diagonal,
    "result_type": _result_type,
    "can_cast": _can_cast,
    "diag": _diag,
    "squeeze": _squeeze,
    "outer": _outer,
    "angle": _angle,
    "cov": _in_double("cov"),
    "corrcoef": _in_double("corrcoef"),
    "fft.irfft": _irfft,
    "median": lambda a, axis=None, **options: _percentile(a, 50, axis, **options),
    "percentile": _percentile,
    "quantile": _quantile,
    "select": _select,
    "interp": _interp,
    "isin": _isin,
    "digitize": _digitize,
    "trapezoid": _trapezoid,
    "polyval": _polyval,
    "pad": _pad,
    "reshape": lambda a, /, shape=None, order="C", *, copy=None: _array(a).reshape(shape, order=order, copy=copy),
    "ravel": lambda a, order="C": _array(a).ravel(order=order),
    "transpose": lambda a, axes=None: _array(a).transpose(axes),
    "copy": lambda a, order="K", subok=False: _array(a).copy(order),
    "shape": lambda a: _array(a).shape,
    "ndim": lambda a: _array(a).ndim,
    "size": lambda a, axis=None: _array(a).size if axis is None else _array(a).shape[axis],
    "real": lambda val: _array(val).real,
    "imag": lambda val: _array(val).imag,
    "matrix_transpose": lambda x, /: _array(x).mT,
    "iscomplexobj": lambda x: _array(x).dtype.kind == "c",
    "isrealobj": lambda x: _array(x).dtype.kind != "c",
}
"""By the name below ``numpy``: functions of the arguments that NumPy's function takes."""


def _array(value: Any) -> TracedArray:
    array: TracedArray = value if is_traced(value) else TracedArray(tensor_of(value))
    return array
