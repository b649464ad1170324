"""Separation of the bias from layers whose kernels do not add it, so that it is added by the following operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch

from thunder_core.executors.decision import Claimed
from thunder_core.executors.executor import Executor
from thunder_core.executors.query import query_executors
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.rewrite import Match, Rule, Substitution, rewrite
from thunder_core.passes.transform import Place, Transform, TransformContext

SEPARATE: Final = {Tag.LINEAR: "cpu", Tag.CONVOLUTION: "cuda"}
"""The type of the device on which a kernel does not add the bias, by the tag of the operation."""
_BIAS: Final = 2
"""The position of the bias among the arguments of these operations."""


@dataclass(frozen=True)
class SeparateBias(Transform):
    """The bias of a layer is added by a separate operation where the layer's kernel does not add it.

    The fusion region of the readers adds it without cost, and one of backward computes its gradient.

    - Linear layers on a CPU whose result only elementwise operations read: BLAS first fills the result with copies of
      the bias. Measured with nanoGPT (6 layers of width 192, 2x64 tokens, float32, one thread): these copies take
      1.1 ms of a step of 46 ms. On a GPU cuBLAS adds a bias without cost.
    - Convolutions on a GPU by cuDNN: PyTorch adds the bias by a kernel of its own, and sums its gradient by another
      one. In a training step of ConvNeXt-B (64 images, bfloat16 autocast) on an H200 these take 2.3 of 34.8 ms of
      kernels. On a CPU oneDNN adds a bias without cost, and so do PyTorch's own kernels, which compute depthwise
      convolutions of contiguous images in float32.

    A layer that an executor claims is not changed.

    Rounding: in float16 and bfloat16 the matmul of a linear layer is rounded before the bias is added, which eager does
    in one step. Convolutions by cuDNN round as in eager.
    """

    name: ClassVar[str] = "separate_bias"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION
    verified: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ("constant_folding",)

    def applies(self, context: TransformContext) -> bool:
        return context.fuses()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        def pattern(op: BoundSymbol) -> Iterator[Match]:
            if _adds_bias_apart(op) and _fuses(op, trace) and not _is_claimed(op, context.executors):
                yield Match((op,))

        def replacement(match: Match) -> tuple[BoundSymbol, ...] | None:
            (op,) = match.ops
            return substitution.ops_of(_with_separate_bias(op.symbol.target), op.args, op.output, op)

        substitution = Substitution(trace)
        return rewrite(trace, [Rule(pattern, replacement)], self.name)


def _adds_bias_apart(op: BoundSymbol) -> bool:
    device = next((device for tag, device in SEPARATE.items() if tag in op.symbol.tags), None)
    if device is None or len(op.args) <= _BIAS or op.kwargs or not op.effects.pure:
        return False
    tensors = op.args[: _BIAS + 1]
    if not all(isinstance(tensor, TensorProxy) and tensor.device.type == device for tensor in tensors):
        return False
    weight: TensorProxy = tensors[1]
    depthwise = Tag.CONVOLUTION in op.symbol.tags and weight.shape[0] > 1 and weight.shape[1] == 1
    return not depthwise or weight.dtype in (torch.float16, torch.bfloat16)


def _fuses(op: BoundSymbol, trace: Trace) -> bool:
    """Whether the bias is added without cost; for a convolution it costs at most as much as in PyTorch."""
    if trace.is_returned(op.output.name):
        return False
    users = trace.users(op.output.name)
    return Tag.CONVOLUTION in op.symbol.tags or (
        bool(users) and all(Tag.ELEMENTWISE in user.symbol.tags for user in users)
    )


def _is_claimed(op: BoundSymbol, executors: Sequence[Executor]) -> bool:
    return any(isinstance(decision, Claimed) for decision in query_executors(executors, op))


def _with_separate_bias(layer: Any) -> Any:
    def call(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *options: Any) -> Any:
        # the result of a linear layer has features last, that of a convolution has channels before the image
        dims = weight.dim() - 2
        return layer(input, weight, None, *options) + (bias.reshape(-1, *[1] * dims) if dims else bias)

    return call
