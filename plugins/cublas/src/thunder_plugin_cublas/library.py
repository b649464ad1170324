"""cuBLASLt by its C interface: the library that PyTorch's own products come from, and is loaded already.

Names and numbers are those of ``cublasLt.h`` (https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api).
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch

from thunder_core.errors import ExecutorError
from thunder_core.plugins import CheckResult
from thunder_plugin_cublas.product import Product

TYPES: Final = {torch.float16: 2, torch.bfloat16: 14}  # CUDA_R_16F, CUDA_R_16BF
_FLOAT, _COMPUTE_FLOAT = 0, 68  # CUDA_R_32F, CUBLAS_COMPUTE_32F
_TRANSPOSED_A, _TRANSPOSED_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8  # CUBLASLT_MATMUL_DESC_*
_WITH_BIAS = 4  # CUBLASLT_EPILOGUE_BIAS
_WORKSPACE, _REDUCTIONS, _ALIGNMENT = 1, 3, 5  # CUBLASLT_MATMUL_PREF_*; that of A, and of B, C and D after it
_SUMS_IN_FLOAT = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts of a sum are added in float32, in a fixed order
WORKSPACE: Final = 32 << 20
"""Bytes that an algorithm may use beside operands and results, as many as PyTorch gives cuBLAS on Hopper."""


class _Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("status", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How a product is computed.

    Attributes:
        code: of the library's version, 64 bytes.
        workspace: bytes.
    """

    code: bytes
    workspace: int


@dataclass(frozen=True, slots=True)
class Description:
    """What the library made of a `Product`, for as long as the process lives."""

    operation: c_void_p
    a: c_void_p
    b: c_void_p
    c: c_void_p
    d: c_void_p
    beta: c_float
    biased: bool
    choosing: threading.Lock = field(default_factory=threading.Lock)


class CublasLt:
    """The library, with a handle for each device.

    Raises:
        ExecutorError: from any method: the library refused; the message has its words.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        functions.cublasLtGetVersion.restype = c_size_t
        functions.cublasLtGetStatusString.restype = ctypes.c_char_p
        functions.cublasLtMatmul.argtypes = [c_void_p] * 14 + [c_size_t, c_void_p]
        self.version = int(functions.cublasLtGetVersion())
        self._handles: dict[int, c_void_p] = {}
        self._one = c_float(1)
        self._one_address = ctypes.addressof(self._one)

    def describe(self, product: Product) -> Description:
        """What `algorithms` and `run` are given."""
        operation = c_void_p()
        self._call("cublasLtMatmulDescCreate", byref(operation), _COMPUTE_FLOAT, _FLOAT)
        for name, transposed in zip((_TRANSPOSED_A, _TRANSPOSED_B), product.transposed, strict=True):
            self._set("cublasLtMatmulDescSetAttribute", operation, name, c_int(transposed))
        if product.biased:
            self._set("cublasLtMatmulDescSetAttribute", operation, _EPILOGUE, c_int(_WITH_BIAS))
        sizes = ((product.m, product.k), (product.k, product.n))
        a, b = [
            self._layout(product.dtype, *(size[::-1] if transposed else size), leading)
            for size, transposed, leading in zip(sizes, product.transposed, product.leading[:2], strict=True)
        ]
        c = self._layout(product.dtype, product.m, product.n, product.leading[2])
        d = self._layout(product.dtype, product.m, product.n, product.m)
        return Description(operation, a, b, c, d, c_float(product.accumulates), product.biased)

    def algorithms(self, product: Product, described: Description, count: int) -> list[Algorithm]:
        """Up to ``count`` for the current device, what the library thinks fastest first."""
        preference, found, results = c_void_p(), c_int(), (_Heuristic * count)()
        self._call("cublasLtMatmulPreferenceCreate", byref(preference))
        try:
            limits = [(_WORKSPACE, c_size_t(WORKSPACE)), (_REDUCTIONS, c_uint32(_SUMS_IN_FLOAT))]
            limits += [(_ALIGNMENT + place, c_uint32(least)) for place, least in enumerate(product.alignments)]
            for name, value in limits:
                self._set("cublasLtMatmulPreferenceSetAttribute", preference, name, value)
            layouts = (described.a, described.b, described.c, described.d)
            arguments = (self._handle(), described.operation, *layouts, preference, count, results, byref(found))
            self._call("cublasLtMatmulAlgoGetHeuristic", *arguments)
        finally:
            self._call("cublasLtMatmulPreferenceDestroy", preference)
        usable = [result for result in results[: found.value] if result.status == 0]
        return [Algorithm(bytes(result.algorithm), int(result.workspace)) for result in usable]

    def run(self, described: Description, algorithm: Algorithm, addresses: tuple[int, ...], stream: int) -> None:
        """Enqueue the product.

        Args:
            described, algorithm: of the product.
            addresses: of A, B, C and D, of the bias or 0, and of the workspace or 0.
            stream: address of a stream of the current device.
        """
        a, b, c, d, bias, workspace = addresses
        arguments = (
            self._handle(), described.operation, self._one_address, a, described.a, b, described.b,
            ctypes.addressof(described.beta), c, described.c, d, described.d, algorithm.code, workspace,
            algorithm.workspace, stream,
        )  # fmt: skip
        if not described.biased:
            self._call("cublasLtMatmul", *arguments)
            return
        with described.choosing:  # the address of the bias is in the description, which threads share
            self._set("cublasLtMatmulDescSetAttribute", described.operation, _BIAS_POINTER, c_void_p(bias))
            self._call("cublasLtMatmul", *arguments)

    def _handle(self) -> c_void_p:
        device = torch.cuda.current_device()
        found = self._handles.get(device)
        if found is None:
            found = c_void_p()
            self._call("cublasLtCreate", byref(found))
            self._handles[device] = found
        return found

    def _layout(self, dtype: torch.dtype, rows: int, columns: int, leading: int) -> c_void_p:
        layout = c_void_p()
        sizes = (c_uint64(rows), c_uint64(columns), c_int64(leading))
        self._call("cublasLtMatrixLayoutCreate", byref(layout), TYPES[dtype], *sizes)
        return layout

    def _set(self, function: str, described: c_void_p, name: int, value: Any) -> None:
        self._call(function, described, name, byref(value), c_size_t(ctypes.sizeof(value)))

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._functions, function)(*arguments)
        if status:
            told = self._functions.cublasLtGetStatusString(status).decode()
            advice = ("leave the operation to others with `exclude`",)
            raise ExecutorError(f"cublas: {function} answered {told}", advice=advice)


@cache
def library() -> CublasLt:
    """The library of PyTorch's CUDA.

    Raises:
        OSError: it is not there.
    """
    return CublasLt(ctypes.CDLL(f"libcublasLt.so.{str(torch.version.cuda).partition('.')[0]}"))


@cache
def missing() -> str | None:
    """Why there is no library to use; None if there is one."""
    if torch.version.cuda is None:
        return "this PyTorch is built without CUDA"
    try:
        library()
    except OSError as error:
        return f"cuBLASLt does not load: {error}"
    return None


def check() -> CheckResult:
    """For ``thunder doctor``: loads the library."""
    reason = missing()
    if torch.version.cuda is None:
        return CheckResult(ok=True, text=f"{reason}; the executor declines")
    if reason is not None:
        return CheckResult(ok=False, text=reason, advice="install the nvidia-cublas that PyTorch asks for")
    return CheckResult(ok=True, text=f"cuBLASLt {library().version}")
