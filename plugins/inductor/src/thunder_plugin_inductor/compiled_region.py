"""The callable that replaces a region."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.autograd.graph import increment_version

from thunder_core.executors.executor import RegionError
from thunder_core.passes.operations import strided_copy, with_strides

_BOUNDS: Final = re.compile(r"index out of bounds: (-?\d+)L? <= .* < (\d+)L?")
_ALIGNMENT: Final = 16  # in bytes; Triton kernels are compiled for this alignment


class IndexOutOfRange(RegionError, IndexError, RuntimeError):
    """A kernel found an index out of range. PyTorch's operators raise IndexError or RuntimeError."""


class CompiledRegion:
    """Calls the code that Inductor generated, which takes a list of inputs.

    Inductor may choose other strides for a result, and returns an argument if nothing is computed (``torch.diff(x,
    0)``). The first call checks the results.

    Attributes:
        call: the generated function.
        checked: positions of inputs whose address must be a multiple of 16 bytes.
        expected: strides of the results, as functions of the symbolic sizes.
        written: positions of inputs that are written.
        sizes: number of symbolic sizes after the tensors. If there are any, each call checks the strides of results.
        artifact: returns the bytes for other processes; None if there is no artifact.
        code: the module that Inductor generated; empty if it is unknown.
    """

    __slots__ = ("artifact", "call", "checked", "code", "expected", "sizes", "written", "wrong")

    def __init__(
        self,
        call: Callable[[list[Any]], Any],
        checked: tuple[int, ...],
        expected: Callable[..., Sequence[tuple[int, ...]]],
        written: tuple[int, ...] = (),
        sizes: int = 0,
    ) -> None:
        self.call = call
        self.checked = checked
        self.expected = expected
        self.written = written
        self.sizes = sizes
        self.wrong: list[int] | None = None
        self.artifact: Callable[[], bytes | None] | None = None
        self.code = ""

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        arguments = [*inputs]
        results: Sequence[Any]
        for index in self.checked:
            if arguments[index].data_ptr() % _ALIGNMENT:
                arguments[index] = strided_copy(arguments[index])
        compares = self.wrong is None or self.sizes > 0
        taken = [*arguments] if compares else ()  # the generated code empties the list
        try:
            results = self._writing(inputs, arguments) if self.written else self.call(arguments)
        except RuntimeError as error:
            match = _BOUNDS.search(str(error))
            if match is None:
                raise
            raise IndexOutOfRange(f"an index is out of range: not from {match[1]} to below {match[2]}") from error
        wrong = self.wrong
        if compares:
            tensors = len(inputs) - self.sizes
            wrong = self.wrong = _wrong(results, taken[:tensors], self.expected(*inputs[tensors:]))
        if wrong:
            results = [*results]
            expected = self.expected(*inputs[len(inputs) - self.sizes :])
            for index in wrong:
                results[index] = with_strides(results[index].clone(), expected[index])
        return results

    def generated_code(self) -> str:
        """The module that Inductor generated, with its kernels."""
        return self.code

    def _writing(self, inputs: Sequence[Any], arguments: list[Any]) -> Sequence[Any]:
        """The call, with PyTorch's side effects of in-place writes."""
        written = [(inputs[index], arguments[index]) for index in self.written]
        if not torch.is_inference_mode_enabled() and any(tensor.is_inference() for tensor, _ in written):
            raise RuntimeError("an inference tensor is written in place outside of inference mode: clone it before")
        results: Sequence[Any] = self.call(arguments)
        increment_version([tensor for tensor, aligned in written if aligned is tensor])
        for tensor, aligned in written:
            if aligned is not tensor:
                tensor.copy_(aligned)
        return results


def _wrong(results: Sequence[Any], inputs: Sequence[Any], expected: Sequence[tuple[int, ...]]) -> list[int]:
    """Positions of results with other strides than expected, or in the memory of an input or of a preceding result."""
    taken = {_address(tensor) for tensor in inputs}
    positions = []
    for index, (tensor, stride) in enumerate(zip(results, expected, strict=True)):
        address = _address(tensor)
        if tensor.stride() != stride or (address and address in taken):
            positions.append(index)
        taken.add(address)
    return positions


def _address(tensor: Any) -> int:
    address: int = tensor.untyped_storage().data_ptr()
    return address
