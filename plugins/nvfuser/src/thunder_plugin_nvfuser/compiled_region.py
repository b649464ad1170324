"""The callable that replaces a region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder_core.passes.operations import with_strides
from thunder_plugin_nvfuser.writer import Written


class CompiledRegion:
    """Calls a fusion definition.

    nvFuser returns views of its inputs if nothing is computed, and may choose other strides for dimensions of size 1.
    The first call checks the results; those that differ are copied in all calls.

    Attributes:
        definition: nvFuser's definition.
        written: the source of the definition and its inputs and outputs.
        options: further arguments of each call.
    """

    __slots__ = ("definition", "options", "written", "wrong")

    def __init__(self, definition: Any, written: Written, options: dict[str, Any]) -> None:
        self.definition = definition
        self.written = written
        self.options = options
        self.wrong: list[int] | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        results: Sequence[Any] = self.definition.execute(list(inputs), **self.options)
        if self.wrong is None:
            self.wrong = self._wrong(inputs, results)
        if self.wrong:
            results = [*results]
            for index in self.wrong:
                results[index] = with_strides(results[index].clone(), self._stride(index))
        return results

    def generated_code(self) -> str:
        """The source of the definition."""
        return self.written.source

    def _wrong(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[int]:
        """Positions of results with other strides, or in the memory of an input or of a preceding result."""
        taken = {_address(tensor) for tensor in inputs}
        positions = []
        for index, (tensor, proxy) in enumerate(zip(results, self.written.outputs, strict=True)):
            if (tensor.dtype, tuple(tensor.shape)) != (proxy.dtype, tuple(proxy.shape)):
                given = f"{tensor.dtype}{list(tensor.shape)} instead of {proxy.dtype}{list(proxy.shape)}"
                raise RuntimeError(f"nvFuser returned {given} from:\n{self.written.source}")
            if tensor.stride() != self._stride(index) or _address(tensor) in taken:
                positions.append(index)
            taken.add(_address(tensor))
        return positions

    def _stride(self, index: int) -> tuple[int, ...]:
        return tuple([int(step) for step in self.written.outputs[index].stride])


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
