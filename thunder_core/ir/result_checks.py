"""Compare the results of executors' functions with the metadata in the trace, in the first run of a program."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from thunder_core.errors import WrongResultError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.printer import FunctionPrinter
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import SizeExpr, are_constant
from thunder_core.ir.verifier import verification_requested

_FAKES = ("if an operator of torch.library comes before it: is its register_fake right? torch.library.opcheck tells",)
_RULES = frozenset({"dtype", "shape", "layout", "device", "strides"})


@dataclass(slots=True)
class ResultChecks:
    """The cost of the result checks of one compilation.

    Attributes:
        lines: number of checked ops in all its programs: forward, each variant of backward.
        seconds: wall time of compiling the checks into these programs and of running them.
    """

    lines: int = 0
    seconds: float = 0.0


class FirstRun:
    """Makes a generated function check the results of claimed ops until one run completes.

    Then the code object of the function is replaced, so that later calls have no overhead. Under ``THUNDER_VERIFY=1``
    the checks stay.

    Args:
        ops: the claimed ops, by the number that the generated code passes to `check`.
        costs: accumulates the time of the checks.
    """

    def __init__(self, ops: Mapping[int, BoundSymbol], costs: ResultChecks) -> None:
        self._ops = ops
        self._costs = costs
        self._always = verification_requested()
        self._function: weakref.ref[FunctionType] | None = None

    def of(self, plain: FunctionType, checked: FunctionType) -> None:
        """Give ``plain`` the code of ``checked`` until that calls `passed`."""
        self._function, self._code = weakref.ref(plain), plain.__code__
        plain.__code__ = checked.__code__
        plain.__dict__["checked"] = checked  # keeps the source alive that tracebacks show

    def check(self, number: int, value: Any) -> Any:
        """Return ``value``, the result of op ``number``. Raises WrongResultError if it differs from the trace."""
        start = time.perf_counter()
        check_results(self._ops[number], value)
        self._costs.seconds += time.perf_counter() - start
        return value

    def passed(self) -> None:
        """Called when a run completes: later calls run without checks."""
        function = self._function() if self._function is not None else None
        if function is not None and not self._always:
            function.__code__ = self._code
            function.__dict__.pop("checked", None)


def check_results(bound: BoundSymbol, value: Any) -> None:
    """Compare the result of an op with its outputs in the trace: types, shapes, strides, dtypes, devices and layouts.

    Strides are compared in dimensions of size greater than 1 of nonempty tensors. A zero-dimensional integer tensor
    may be on the CPU where the trace has another device: PyTorch's ops accept both, and its attention kernels return
    dropout seeds on the CPU unless they are captured in a CUDA graph.

    Raises:
        WrongResultError: they differ; the message names the executor, the op and the user's line.
    """
    for proxy, problem in differences(bound.output, value):
        raise _error(bound, proxy, problem)


def differences(expected: Any, value: Any) -> Sequence[tuple[TensorProxy | None, str]]:
    """What differs between the output of an op and a value: descriptions like ``dtype torch.float64 instead of
    torch.float32``, each with its proxy; None for the structure.
    """
    if isinstance(expected, TensorProxy):
        problem = _difference(expected, value)
        return [(expected, problem)] if problem else ()
    if isinstance(expected, dict):
        expected, value = tuple(expected.values()), tuple(value.values()) if isinstance(value, dict) else value
    if not isinstance(expected, tuple | list):
        return ()
    if not isinstance(value, tuple | list):
        got = "None" if value is None else type(value).__qualname__
        return [(None, f"{got} instead of {len(expected)} results")]
    if len(value) != len(expected):
        return [(None, f"{len(value)} results instead of {len(expected)}")]
    return [found for one, item in zip(expected, value, strict=True) for found in differences(one, item)]


def _difference(expected: TensorProxy, value: Any) -> str:
    """The first difference, such as ``dtype torch.float64 instead of torch.float32``; empty if there is none."""
    if not isinstance(value, torch.Tensor):
        return f"{'None' if value is None else type(value).__qualname__} instead of a tensor"
    if value.dtype is not expected.dtype:
        return f"dtype {value.dtype} instead of {expected.dtype}"
    if not are_constant((*expected.shape, *expected.stride)):
        return _difference_in_constant_sizes(expected, value)
    if value.shape != expected.shape:
        return f"shape {tuple(value.shape)} instead of {tuple(expected.shape)}"
    if value.layout is not expected.layout:
        return f"layout {value.layout} instead of {expected.layout}"
    if value.device != expected.device and not _is_seed(value):
        return f"device {value.device} instead of {expected.device}"
    if expected.layout is torch.strided and value.stride() != expected.stride:
        pairs = zip(value.stride(), expected.stride, expected.shape, strict=True)
        if 0 not in expected.shape and any(one != other and size > 1 for one, other, size in pairs):
            return f"strides {value.stride()} instead of {tuple(expected.stride)}"
    return ""


def _difference_in_constant_sizes(expected: TensorProxy, value: torch.Tensor) -> str:
    """`_difference` of a tensor with varying sizes: constant sizes, layout and device are compared."""
    known = [(one, other) for one, other in zip(value.shape, expected.shape) if type(other) is not SizeExpr]
    if value.ndim != expected.ndim or any(one != other for one, other in known):
        return f"shape {tuple(value.shape)} instead of {tuple(expected.shape)}"
    if value.layout is not expected.layout:
        return f"layout {value.layout} instead of {expected.layout}"
    return "" if value.device == expected.device else f"device {value.device} instead of {expected.device}"


def _is_seed(value: torch.Tensor) -> bool:
    return value.ndim == 0 and value.device.type == "cpu" and not value.dtype.is_floating_point


def _error(bound: BoundSymbol, proxy: TensorProxy | None, problem: str) -> WrongResultError:
    executor = bound.symbol.executor
    op, inside = bound, ""
    for part in bound.parts:
        if proxy is not None and any(proxy.name == output.name for output in part.outputs()):
            op, inside = part, f", in {bound.symbol.name}"
    printer = FunctionPrinter(LiteralPrinter(lambda body: body.name), lowered=False, comments=False)
    name = f" for {proxy.name}" if proxy is not None else ""
    word = problem.split(" ", 1)[0]
    return WrongResultError(
        word if word in _RULES else "structure",
        f"the executor {executor!r} returned {problem}{name}, the result of `{printer.line(op)}`{inside}; the "
        "rest of the program is compiled for the metadata of this line",
        location=op.location,
        advice=(
            f"report this to the authors of {executor!r}: its function must return what the operation does",
            f"leave {executor!r} out of the executors, or exclude this operation from it, to go on without it",
            *(_FAKES if inside else ()),
        ),
    )
