"""What runs in place of a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch._prims_common import clone_preserve_strides

from thunder_core.passes.operations import with_strides

_ALIGNMENT: Final = 16  # in bytes; Triton kernels are compiled for it


class CompiledRegion:
    """Calls what Inductor wrote, which takes its inputs as a list.

    Inductor may give a result other strides where it thinks that nobody minds, and gives an argument back where it
    finds that nothing is left to compute (``torch.diff(x, 0)``). The first call sees whether it does.

    Attributes:
        call: the function.
        checked: positions of inputs whose data must start at a multiple of 16 bytes.
        expected: strides of the results.
        artifact: returns what other processes can load; None where there is nothing.
    """

    __slots__ = ("artifact", "call", "checked", "expected", "wrong")

    def __init__(
        self, call: Callable[[list[Any]], Any], checked: tuple[int, ...], expected: list[tuple[int, ...]]
    ) -> None:
        self.call = call
        self.checked = checked
        self.expected = expected
        self.wrong: list[int] | None = None
        self.artifact: Callable[[], bytes | None] | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        arguments = [*inputs]
        for index in self.checked:
            if arguments[index].data_ptr() % _ALIGNMENT:
                arguments[index] = clone_preserve_strides(arguments[index])
        results: Sequence[Any] = self.call(arguments)
        if self.wrong is None:
            self.wrong = _wrong(results, inputs, self.expected)
        if self.wrong:
            results = [*results]
            for index in self.wrong:
                results[index] = with_strides(results[index].clone(), self.expected[index])
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
