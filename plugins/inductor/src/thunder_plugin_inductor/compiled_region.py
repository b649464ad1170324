"""What runs in place of a region."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.autograd.graph import increment_version

from thunder_core.passes.operations import strided_copy, with_strides

_BOUNDS: Final = re.compile(r"index out of bounds: (-?\d+)L? <= .* < (\d+)L?")
_ALIGNMENT: Final = 16  # in bytes; Triton kernels are compiled for it


class IndexOutOfRange(IndexError, RuntimeError):
    """A kernel met an index that its tensor does not have. PyTorch's operators raise the one or the other for that."""


class CompiledRegion:
    """Calls what Inductor wrote, which takes its inputs as a list.

    Inductor may give a result other strides where it thinks that nobody minds, and gives an argument back where it
    finds that nothing is left to compute (``torch.diff(x, 0)``). The first call sees whether it does.

    Attributes:
        call: the function.
        checked: positions of inputs whose data must start at a multiple of 16 bytes.
        expected: strides of the results, of the sizes that vary between calls.
        written: positions of inputs that are written.
        sizes: how many such sizes follow the tensors. Where there are any, each call sees what strides results have.
        artifact: returns what other processes can load; None where there is nothing.
    """

    __slots__ = ("artifact", "call", "checked", "expected", "sizes", "written", "wrong")

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

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        arguments = [*inputs]
        results: Sequence[Any]
        for index in self.checked:
            if arguments[index].data_ptr() % _ALIGNMENT:
                arguments[index] = strided_copy(arguments[index])
        try:
            results = self._writing(inputs, arguments) if self.written else self.call(arguments)
        except RuntimeError as error:
            found = _BOUNDS.search(str(error))
            if found is None:
                raise
            raise IndexOutOfRange(f"an index is out of range: not from {found[1]} to below {found[2]}") from error
        wrong = self.wrong
        if wrong is None or self.sizes:
            tensors = len(inputs) - self.sizes
            wrong = self.wrong = _wrong(results, inputs[:tensors], self.expected(*inputs[tensors:]))
        if wrong:
            results = [*results]
            expected = self.expected(*inputs[len(inputs) - self.sizes :])
            for index in wrong:
                results[index] = with_strides(results[index].clone(), expected[index])
        return results

    def _writing(self, inputs: Sequence[Any], arguments: list[Any]) -> Sequence[Any]:
        """The call, and what PyTorch does besides where it writes in place."""
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
    """Positions of results with other strides than expected, or in the memory of an input or of an earlier result."""
    taken = {_address(tensor) for tensor in inputs}
    found = []
    for index, (tensor, stride) in enumerate(zip(results, expected, strict=True)):
        address = _address(tensor)
        if tensor.stride() != stride or (address and address in taken):
            found.append(index)
        taken.add(address)
    return found


def _address(tensor: Any) -> int:
    address: int = tensor.untyped_storage().data_ptr()
    return address
