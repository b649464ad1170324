"""The array that a program handles while it is recorded. NumPy passes calls with it to the tables of this package."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin

from thunder_frontend.observe.bytecode import CLASS_NAMES
from thunder_frontend.record.recorder import active_recorder
from thunder_frontend.record.traced_size import called_by_program
from thunder_plugin_numpy import indexing
from thunder_plugin_numpy.coverage import not_covered, words
from thunder_plugin_numpy.dtypes import NUMPY, torch_dtype


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The array in the memory of a tensor that a program returns."""
    return tensor.detach().resolve_conj().resolve_neg().numpy()


def scalar_of(tensor: torch.Tensor) -> Any:
    """The NumPy scalar that a program returns, from a tensor without dimensions."""
    return array_of(tensor)[()]


_SCALARS = {"b": np.bool_, "u": np.unsignedinteger, "i": np.signedinteger, "f": np.floating, "c": np.complexfloating}
"""The abstract classes of scalars, by the kind of their dtype."""


class _ArrayClass(type):
    """The metaclass of `TracedArray`, whose name is not that of NumPy's class."""

    def __getattribute__(cls, name: str) -> Any:
        if name in CLASS_NAMES and active_recorder() is not None and called_by_program():
            raise not_covered("the program reads the name of the class of an array", "use isinstance(x, numpy.ndarray)")
        return super().__getattribute__(name)


class TracedArray(NDArrayOperatorsMixin, metaclass=_ArrayClass):  # type: ignore[metaclass]  # the stub has ABCMeta
    """An array, or a NumPy scalar, whose values are those of a tensor of the trace.

    It is an instance of `numpy.ndarray`, or of an abstract class of scalars, for ``isinstance``. Functions of NumPy
    call its ``__array_ufunc__`` and ``__array_function__``. Code in C that would read its memory gets an error.

    Attributes:
        tensor: the tensor.
        is_scalar: whether it is a NumPy scalar, as ``x.sum()`` and ``x[0, 0]`` are.
        argument: the array of the call, if this is an argument; None for a result.
        copied: why a write to it does not reach the array that it would be a view of in NumPy; empty if it does.
    """

    __slots__ = ("argument", "copied", "is_scalar", "tensor")
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, tensor: torch.Tensor, *, is_scalar: bool = False, argument: Any = None, copied: str = ""
    ) -> None:
        self.tensor = tensor
        self.is_scalar = is_scalar
        self.argument = argument
        self.copied = copied

    # ------------------------------------------------------------ what Python and NumPy ask

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return _SCALARS[self.dtype.kind] if self.is_scalar else np.ndarray

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from thunder_plugin_numpy.ufuncs import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from thunder_plugin_numpy.functions import call_function

        return call_function(function, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_covered("code in C reads the memory of an array that is computed in the compiled program")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if name in _METHODS:
            function = getattr(np, name)
            return lambda *args, **kwargs: self.__array_function__(function, (), (self, *args), kwargs)
        raise not_covered(f"the program uses numpy.ndarray.{name}, which is not covered")

    # ------------------------------------------------------------ metadata

    @property
    def dtype(self) -> np.dtype[Any]:
        return NUMPY[self.tensor.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    @property
    def size(self) -> int:
        return math.prod(self.tensor.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple([stride * self.itemsize for stride in self.tensor.stride()])

    @property
    def T(self) -> TracedArray:
        return self.transpose()

    @property
    def mT(self) -> TracedArray:
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return self._view(self.tensor.mT)

    @property
    def real(self) -> TracedArray:
        return self._view(self.tensor.real) if self.tensor.is_complex() else self

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> TracedArray:
        if self.tensor.is_complex():
            return self._view(self.tensor.imag)
        return TracedArray(
            torch.zeros_like(self.tensor), is_scalar=self.is_scalar, copied="is the imaginary part of a real array"
        )

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    @property
    def flat(self) -> Iterator[Any]:
        return iter(self.ravel())

    # ------------------------------------------------------------ values

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.tensor.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return iter([self[index] for index in range(len(self))])

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.tensor.reshape(()))

    def __float__(self) -> float:
        return float(self._only())

    def __int__(self) -> int:
        return int(self._only())

    def __complex__(self) -> complex:
        return complex(self._only())

    def __index__(self) -> int:
        if self.ndim or self.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.tensor)

    def _only(self) -> torch.Tensor:
        if self.ndim:
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        return self.tensor

    def item(self, *index: Any) -> Any:
        if index:
            return self.reshape(-1)[index[0]].item() if len(index) == 1 and self.ndim > 1 else self[index].item()
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.tensor.reshape(()).item()

    def tolist(self) -> Any:
        return self.tensor.tolist()

    def __repr__(self) -> str:
        if active_recorder() is not None:
            raise not_covered("the program converts an array to text, which needs its values")
        return f"<array of the compiled program, {self.tensor.dtype}{list(self.tensor.shape)}>"

    __str__ = __repr__

    def __format__(self, form: str) -> str:
        return str(self)

    # ------------------------------------------------------------ items

    def __getitem__(self, index: Any) -> TracedArray:
        tensor, is_scalar, copied = indexing.read(self.tensor, index)
        return TracedArray(tensor, is_scalar=is_scalar, copied=copied or self.copied)

    def __setitem__(self, index: Any, value: Any) -> None:
        from thunder_plugin_numpy.operands import tensor_of

        self.check_writable()
        indexing.write(self.tensor, index, tensor_of(value))

    def check_writable(self) -> None:
        """Raise the error of a write to this array, if it has one."""
        if self.is_scalar:
            raise TypeError(f"'numpy.{self.dtype}' object does not support item assignment")
        if self.argument is not None and not self.argument.flags.writeable:
            raise ValueError("assignment destination is read-only")
        if self.copied:
            raise not_covered(
                f"the program writes to an array that {self.copied}, which is a copy in the compiled program",
                "write to the array itself, or copy it before: x.copy()",
            )

    # ------------------------------------------------------------ methods

    def __pow__(self, other: Any) -> Any:
        if self.dtype.kind == "b" and isinstance(
            other, int | float
        ):  # NumPy calls np.square and others for some of these
            raise not_covered("a power of booleans and a number is not covered")
        return np.power(self, other)

    def _view(self, tensor: torch.Tensor) -> TracedArray:
        return TracedArray(tensor, is_scalar=self.is_scalar, copied=self.copied)

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> TracedArray:
        wanted = torch_dtype(dtype, "the result of astype")
        if not np.can_cast(self.dtype, NUMPY[wanted], casting):
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {NUMPY[wanted]!r} according to the rule {casting!r}"
            )
        if order not in ("K", "C", "A"):
            raise not_covered(f"astype(order={order!r}) is not covered")
        if not copy and wanted == self.tensor.dtype:
            return self
        result = cast(self.tensor, wanted) if wanted != self.tensor.dtype else self.tensor.clone()
        return TracedArray(result.contiguous() if order == "C" else result, is_scalar=self.is_scalar)

    def copy(self, order: str = "C") -> TracedArray:
        if order not in ("C", "K"):
            raise not_covered(f"copy(order={order!r}) is not covered")
        layout = torch.contiguous_format if order == "C" else torch.preserve_format
        return TracedArray(self.tensor.clone(memory_format=layout), is_scalar=self.is_scalar)

    def __copy__(self) -> TracedArray:
        return self.copy("K")

    def __deepcopy__(self, memo: Any) -> TracedArray:
        return self.copy("K")

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> TracedArray:
        if order != "C" or copy is not None:
            raise not_covered(f"reshape(order={order!r}, copy={copy}) is not covered")
        sizes = shape[0] if len(shape) == 1 else shape
        sizes = [operator.index(size) for size in sizes] if isinstance(sizes, tuple | list) else [operator.index(sizes)]
        _check_sizes(self.size, sizes)
        return self._shaped(self.tensor.reshape(sizes))

    def ravel(self, order: str = "C") -> TracedArray:
        if order != "C":
            raise not_covered(f"ravel(order={order!r}) is not covered")
        return self._shaped(self.tensor.reshape(-1))

    def flatten(self, order: str = "C") -> TracedArray:
        if order != "C":
            raise not_covered(f"flatten(order={order!r}) is not covered")
        return TracedArray(self.tensor.reshape(-1).clone())

    def _shaped(self, tensor: torch.Tensor) -> TracedArray:
        return TracedArray(tensor, copied=self.copied)

    def transpose(self, *axes: Any) -> TracedArray:
        given = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)) else axes
        order = tuple(reversed(range(self.ndim))) if not given else tuple([operator.index(axis) for axis in given])
        if len(order) != self.ndim:
            raise ValueError("axes don't match array")
        return self._shaped(self.tensor.permute(order))

    def fill(self, value: Any) -> None:
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None) -> None:
        self[...] = np.sort(self, axis=axis, kind=kind, order=order)

    def conj(self) -> Any:
        return np.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    def dot(self, other: Any, out: Any = None) -> Any:
        return np.dot(self, other, out=out)

    def max(self, *args: Any, **kwargs: Any) -> Any:
        return np.amax(self, *args, **kwargs)

    def min(self, *args: Any, **kwargs: Any) -> Any:
        return np.amin(self, *args, **kwargs)


_METHODS = words(
    """
    all any argmax argmin argsort clip cumprod cumsum diagonal mean nonzero prod repeat round searchsorted squeeze std
    sum swapaxes take trace var
    """
)
"""The methods that do what the function of this name does with the array as its first argument."""


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor in another dtype, as NumPy casts: the real part of complex numbers."""
    if tensor.is_complex() and not dtype.is_complex:
        tensor = tensor != 0 if dtype is torch.bool else tensor.real
    return tensor.to(dtype)


def _check_sizes(size: int, sizes: list[int]) -> None:
    """Raise the error of NumPy for a shape with another number of elements."""
    known = math.prod([each for each in sizes if each >= 0])
    unknown = sum(each < 0 for each in sizes)
    if unknown > 1:
        raise ValueError("can only specify one unknown dimension")
    if (unknown and (not known or size % known)) or (not unknown and known != size):
        raise ValueError(f"cannot reshape array of size {size} into shape {tuple(sizes)}")
