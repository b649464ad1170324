"""What nvFuser's direct interface means, computed by PyTorch: the tests' own, for machines without a GPU.

``FusionDefinition`` writes down what is called and computes it in `execute`. It has the names and the parameters of the
real ``nvfuser_direct`` (0.2.36), as far as this plugin calls it, and nothing else: a name that the real one lacks is an
error (``nvfuser_direct_ops.txt``). Where the real one converts, broadcasts or chooses by its own rules, it is stricter:
nothing may depend on these.

- Operands of arithmetic have one dtype, none of half precision, and one shape; numbers are of the kind of the dtype.
- Only dimensions of size 1 are squeezed; steps of slices are 1.
- A result whose order in memory is not given lies the other way round than in PyTorch.
- A result in which nothing was computed is a view of the input.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from fake_operations import OPERATIONS, Node, Scalar

NAMES = frozenset((Path(__file__).parent / "nvfuser_direct_ops.txt").read_text().split("\n")[1:-1])


class DataType:
    Double, Float, Half, BFloat16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
    Int, Int32, Bool = torch.int64, torch.int32, torch.bool


class Ops:
    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"module 'nvfuser_direct.ops' has no attribute {name!r}")
        return getattr(OPERATIONS, name)


class FusionDefinition:
    """See there."""

    executed = 0

    def __init__(self) -> None:
        self.ops = Ops()
        self.inputs: list[tuple[Node, list[int], list[int], torch.dtype]] = []
        self.outputs: list[Node] = []
        self.open = False

    def __enter__(self) -> FusionDefinition:
        self.open = True
        return self

    def __exit__(self, *error: Any) -> None:
        assert error[0] is None, "nvFuser prints errors that pass its context"
        self.open = False

    def define_tensor(
        self,
        sizes: list[int],
        strides: list[int],
        dtype: torch.dtype = torch.float32,
        static_sizes: bool = False,
        is_cpu: bool = False,
    ) -> Node:
        assert self.open
        assert len(sizes) == len(strides)
        assert all(sizes)
        node = Node(_nothing)
        self.inputs.append((node, sizes, strides, dtype))
        return node

    def define_scalar(self, value: Any, dtype: torch.dtype | None = None) -> Scalar:
        assert self.open
        assert type(value) is {DataType.Double: float, DataType.Int: int, DataType.Bool: bool}[dtype]
        return Scalar(value, dtype)

    def add_output(self, node: Node) -> None:
        assert self.open
        self.outputs.append(node)

    def execute(self, inputs: list[torch.Tensor], *, device: Any = None, **options: Any) -> list[torch.Tensor]:
        assert not self.open
        assert set(options) <= {"_enable_options", "_disable_options"}
        assert bool(inputs) or device is not None
        type(self).executed += 1
        known: dict[int, Any] = {}
        for tensor, (node, sizes, strides, dtype) in zip(inputs, self.inputs, strict=True):
            assert (list(tensor.shape), list(tensor.stride()), tensor.dtype) == (sizes, strides, dtype)
            known[id(node)] = tensor
        return [_placed(_value(node, known), node.laid_out) for node in self.outputs]


def _nothing() -> None:
    raise AssertionError("an input that was not given")


def _value(argument: Any, known: dict[int, Any]) -> Any:
    if isinstance(argument, list):
        return [_value(item, known) for item in argument]
    if not isinstance(argument, Node):
        return argument
    if id(argument) not in known:
        known[id(argument)] = argument.compute(*[_value(item, known) for item in argument.arguments])
    return known[id(argument)]


def _placed(tensor: torch.Tensor, laid_out: bool) -> torch.Tensor:
    if laid_out or tensor.ndim < 2:
        return tensor
    dims = list(range(tensor.ndim))[::-1]
    return tensor.permute(dims).contiguous().permute(dims)
