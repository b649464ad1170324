"""A stand-in for cuBLASLt on a CPU: the functions of its C interface that the plugin calls, and no more.

It reads and writes memory at the addresses, sizes and leading dimensions that it was given, so that a wrong number
shows in results. Matrices are stored by columns, as the library has them. Where the real one answers with an error, so
does it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from thunder_plugin_cublas import library, plans, product

DTYPES = {number: dtype for dtype, number in library.TYPES.items()}
OK, INVALID_VALUE, NOT_SUPPORTED = 0, 7, 15


@dataclass
class Layout:
    dtype: torch.dtype
    rows: int
    columns: int
    leading: int


@dataclass
class Operation:
    attributes: dict[int, int] = field(default_factory=dict)


class Function:
    """A function of the library; ``ctypes`` keeps its types there."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*map(plain, arguments))


def plain(argument: Any) -> Any:
    """What C would see: numbers, and what references refer to."""
    if hasattr(argument, "_obj"):
        return argument._obj
    return argument.value if isinstance(argument, ctypes._SimpleCData) else argument


class FakeLibrary:
    """The library's functions. ``proposed`` algorithms are told apart by the first byte of their code.

    Attributes:
        launched: the first bytes of the algorithms of all products, in order.
    """

    def __init__(self, proposed: int = 3) -> None:
        self.proposed = proposed
        self.launched: list[int] = []
        self.objects: list[Any] = [None]

    def __getattr__(self, name: str) -> Function:
        function = Function(object.__getattribute__(self, f"_{name}"))
        setattr(self, name, function)
        return function

    def _cublasLtGetVersion(self) -> int:
        return 130000

    def _cublasLtGetStatusString(self, status: int) -> bytes:
        return {INVALID_VALUE: b"CUBLAS_STATUS_INVALID_VALUE", NOT_SUPPORTED: b"CUBLAS_STATUS_NOT_SUPPORTED"}[status]

    def _cublasLtCreate(self, handle: Any) -> int:
        return self._made(handle, "handle")

    def _cublasLtMatmulDescCreate(self, described: Any, compute: int, scale: int) -> int:
        assert (compute, scale) == (68, 0)
        return self._made(described, Operation())

    def _cublasLtMatmulDescSetAttribute(self, described: int, name: int, value: Any, size: int) -> int:
        assert size == {3: 4, 4: 4, 7: 4, 8: 8}[name]
        self.objects[described].attributes[name] = value.value or 0
        return OK

    def _cublasLtMatrixLayoutCreate(self, layout: Any, kind: int, rows: int, columns: int, leading: int) -> int:
        if leading < rows:
            return INVALID_VALUE
        return self._made(layout, Layout(DTYPES[kind], rows, columns, leading))

    def _cublasLtMatmulPreferenceCreate(self, preference: Any) -> int:
        return self._made(preference, {})

    def _cublasLtMatmulPreferenceSetAttribute(self, preference: int, name: int, value: Any, size: int) -> int:
        assert size == {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4}[name]
        self.objects[preference][name] = value.value
        return OK

    def _cublasLtMatmulPreferenceDestroy(self, preference: int) -> int:
        self.objects[preference] = None
        return OK

    def _cublasLtMatmulAlgoGetHeuristic(
        self, handle: int, operation: int, a: int, b: int, c: int, d: int, preference: int, count: int, results: Any,
        found: Any,
    ) -> int:  # fmt: skip
        asked = self.objects[preference]
        assert self.objects[handle] == "handle"
        assert set(asked) == {1, 3, 5, 6, 7, 8}
        assert asked[3] == 2
        found.value = min(count, self.proposed)
        for place in range(found.value):
            results[place].algorithm[0] = place
            results[place].workspace = 64 if place == 1 else 0
        return OK

    def _cublasLtMatmul(
        self, handle: int, operation: int, alpha: int, a: int, a_layout: int, b: int, b_layout: int, beta: int, c: int,
        c_layout: int, d: int, d_layout: int, code: bytes, workspace: int, size: int, stream: int,
    ) -> int:  # fmt: skip
        if bool(workspace) != bool(size):
            return INVALID_VALUE
        self.launched.append(code[0])
        attributes = self.objects[operation].attributes
        factors = [self._matrix(address, layout) for address, layout in ((a, a_layout), (b, b_layout))]
        for place, name in enumerate((3, 4)):
            factors[place] = factors[place].t() if attributes.get(name) else factors[place]
        summand, result = self._matrix(c, c_layout), self._matrix(d, d_layout)
        if factors[0].shape[1] != factors[1].shape[0] or result.shape != (factors[0].shape[0], factors[1].shape[1]):
            return INVALID_VALUE
        exact = number_at(alpha) * (factors[0].float() @ factors[1].float())
        if number_at(beta):
            exact += number_at(beta) * summand.float()
        if attributes.get(7) == 4:
            exact += at(attributes[8], result.dtype, (result.shape[0],), (1,)).float()[:, None]
        result.copy_(exact)
        return OK

    def _matrix(self, address: int, layout: int) -> torch.Tensor:
        found = self.objects[layout]
        return at(address, found.dtype, (found.rows, found.columns), (1, found.leading))

    def _made(self, reference: Any, made: Any) -> int:
        reference.value = len(self.objects)
        self.objects.append(made)
        return OK


def number_at(address: int) -> float:
    return ctypes.c_float.from_address(address).value


def at(address: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """The memory there, as a tensor."""
    length = 1 + sum((size - 1) * step for size, step in zip(shape, stride))
    memory = (ctypes.c_char * (length * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, stride)


@contextlib.contextmanager
def installed(fake: FakeLibrary | None = None) -> Iterator[FakeLibrary]:
    """The fake in the library's place, with no plans made; times are such that the second algorithm is the fastest."""
    fake = fake or FakeLibrary()
    lt = library.CublasLt(fake)
    plans.PLANS.clear()
    with (
        mock.patch.object(library, "library", return_value=lt),
        mock.patch.object(torch.cuda, "current_device", return_value=0),
        mock.patch.object(product, "ALIGNED", 16),  # what lies on a CPU begins at any multiple of it
        mock.patch(
            "thunder_plugin_cublas.selection.milliseconds", lambda algorithms, launch: times_of(algorithms, launch)
        ),
    ):
        try:
            yield fake
        finally:
            plans.PLANS.clear()


def times_of(algorithms: Any, launch: Any) -> list[float]:
    for algorithm in algorithms:
        launch(algorithm)
    return [1.0 if place == 1 else 2.0 for place in range(len(algorithms))]
