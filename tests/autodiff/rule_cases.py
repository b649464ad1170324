"""Calls with rules by hand, and calls whose derivative by autograd is as good as any, with awkward arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

Make = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A program of one line, mostly.

    Attributes:
        close: compare gradients with this tolerance instead of bit by bit.
        more: bytes that may be kept for backward besides those that eager keeps.
        by_autograd: no rule applies; autograd's derivative is expected.
    """

    name: str
    program: Callable[..., Any]
    arguments: Make
    close: float = 0.0
    more: int = 0
    by_autograd: bool = False


def tensor(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True, low: float = 0.5) -> torch.Tensor:
    """Values between ``low`` and ``low + 1``."""
    return (torch.rand(shape, dtype=torch.float64) + low).to(dtype).requires_grad_(grad)


def transposed(*shape: int) -> torch.Tensor:
    """Like `tensor`, the last two dimensions exchanged in memory."""
    return tensor(*shape).detach().mT.contiguous().mT.requires_grad_()


def channels_last(*shape: int) -> torch.Tensor:
    """Like `tensor`, with the channels, dimension 1, last in memory."""
    return tensor(*shape).detach().movedim(1, -1).contiguous().movedim(-1, 1).requires_grad_()


def _of(*shapes: tuple[int, ...]) -> Make:
    return lambda: tuple(tensor(*shape) for shape in shapes)


_UNARY = (
    torch.abs, torch.clone, torch.cos, torch.erf, torch.exp, torch.expm1, torch.log, torch.log1p, torch.neg,
    torch.reciprocal, torch.relu, torch.rsqrt, torch.sigmoid, torch.sin, torch.sqrt, torch.square, torch.tanh,
    F.silu, F.gelu,
)  # fmt: skip
_UNARY_WITH_RULE = frozenset({torch.square})
_BINARY = (torch.add, torch.sub, torch.rsub, torch.mul, torch.div)
_LAYOUTS: dict[str, Make] = {
    "vector": _of((5,)),
    "transposed": lambda: (transposed(3, 4),),
    "scalar": _of(()),
    "empty": _of((0, 3)),
    "bfloat16": lambda: (tensor(3, 4, dtype=torch.bfloat16),),
}
_PAIRS: dict[str, Make] = {
    "same shape": _of((3, 4), (3, 4)),
    "broadcast first": _of((4,), (2, 3, 4)),
    "broadcast both": _of((2, 1, 4), (3, 1)),
    "scalar tensor": _of((), (3, 4)),
    "promoted": lambda: (tensor(3, 4, dtype=torch.bfloat16), tensor(4)),
    "number": lambda: (tensor(3, 4), 2.5),
    "integer tensor": lambda: (tensor(3, 4), torch.arange(1, 5)),
    "unwanted": lambda: (tensor(3, 4, grad=False), tensor(4)),
    "transposed": lambda: (transposed(3, 4), tensor(3, 4)),
    "empty": _of((0, 4), (1, 4)),
}


def _elementwise() -> Iterator[Case]:
    for function in _UNARY:
        for kind, make in _LAYOUTS.items():
            by_autograd = function not in _UNARY_WITH_RULE
            yield Case(f"{function.__name__}, {kind}", function, make, by_autograd=by_autograd)
    for function in _BINARY:
        # where the quotient is at hand, the partition keeps it rather than divide again
        more = 96 if function is torch.div else 0
        for kind, make in _PAIRS.items():
            yield Case(f"{function.__name__}, {kind}", function, make, more=more, by_autograd=True)
        twice = lambda x, f=function: f(x, x)  # noqa: E731
        yield Case(f"{function.__name__}, same twice", twice, _of((3, 4)), more=more, by_autograd=True)


def _reductions() -> Iterator[Case]:
    for function in (torch.sum, torch.mean):
        for dim in (0, -1, (0, 2)):
            for keepdim in (False, True):
                name = f"{function.__name__} of {dim}{', kept' if keepdim else ''}"
                yield Case(name, lambda x, *, f=function, d=dim, k=keepdim: f(x, d, k), _of((2, 3, 4)))


_ZEROS = torch.zeros(3, 4)
_CONDITION = torch.tensor([[True], [False], [True]])
_WITH_RULE = [
    *[Case(f"pow {p}", lambda x, p=p: torch.pow(x, p), _of((3, 4))) for p in (0, 1, 2, 3, 0.5, -1)],
    Case("where", lambda x, y: torch.where(_CONDITION, x, y), _of((3, 4), (4,))),
    Case("where, number", lambda x: torch.where(_CONDITION, x, -1.0), _of((3, 4))),
    # products
    Case("linear", F.linear, _of((2, 3, 4), (5, 4), (5,))),
    Case("linear, rows", F.linear, _of((3, 4), (5, 4), (5,))),
    Case("linear without bias", F.linear, _of((2, 3, 4), (5, 4))),
    Case("linear, weight alone", F.linear, lambda: (tensor(2, 3, 4, grad=False), tensor(5, 4))),
    Case("linear, no rows", F.linear, _of((0, 3, 4), (5, 4), (5,))),
    # which kernel multiplies, and in which order it sums, depends on strides and on the processor
    Case("linear, transposed", F.linear, lambda: (transposed(2, 3, 4), transposed(5, 4)), close=1e-6),
    Case("matmul, vectors", torch.matmul, _of((4,), (4,))),
    Case("matmul, vector first", torch.matmul, _of((4,), (4, 5))),
    Case("matmul, vector last", torch.matmul, _of((3, 4), (4,))),
    Case("matmul", torch.matmul, _of((3, 4), (4, 5))),
    Case("matmul, transposed", torch.matmul, lambda: (transposed(3, 4), transposed(4, 5))),
    Case("matmul, batch by matrix", torch.matmul, _of((2, 3, 4), (4, 5))),
    Case("matmul, batches", torch.matmul, _of((2, 3, 4), (2, 4, 5))),
    Case("matmul, broadcast batches", torch.matmul, _of((2, 1, 3, 4), (6, 4, 5))),
    # reductions
    Case("sum of all", torch.sum, _of((2, 3))),
    Case("mean of all", torch.mean, _of((2, 3))),
    Case("sum of a scalar", torch.sum, _of(())),
    Case("sum, dtype", lambda x: x.sum(0, dtype=torch.float64), _of((2, 3))),
    Case("mean of nothing", lambda x: x.mean(1), _of((2, 0))),
    Case("average, 1d", lambda x: F.adaptive_avg_pool1d(x, 1), _of((2, 3, 5))),
    Case("average, 2d", lambda x: F.adaptive_avg_pool2d(x, 1), _of((2, 3, 5, 4))),
    Case("average, channels last", lambda x: F.adaptive_avg_pool2d(x, (1, 1)), lambda: (channels_last(2, 3, 5, 4),)),
    Case("average, one image, bfloat16", lambda x: F.adaptive_avg_pool2d(x, 1),
         lambda: (tensor(3, 5, 4, dtype=torch.bfloat16),)),
    Case("average, 3d", lambda x: F.adaptive_avg_pool3d(x, 1), lambda: (channels_last(2, 3, 5, 4, 2),)),
    # shapes
    Case("cat", lambda x, y: torch.cat((x, y), -1), _of((3, 4), (3, 2))),
    Case("cat, promoted", lambda x, y: torch.cat((x, y)), lambda: (tensor(3), tensor(2, dtype=torch.float64))),
    Case("cat, one wanted", lambda x, y: torch.cat((y, x)), lambda: (tensor(3), tensor(2, grad=False))),
    Case("cat, same twice", lambda x: torch.cat((x, x)), _of((3,))),
    Case("stack", lambda x, y: torch.stack((x, y), 1), _of((3, 4), (3, 4))),
    Case("tensor_split", lambda x: torch.tensor_split(x, 3, 1), _of((2, 7))),
    # selections
    Case("slices", lambda x: x[1:, :-1], _of((3, 4))),
    Case("numbers and slices", lambda x: x[-1, None, 1:3, ..., 0], _of((2, 4, 2, 3))),
    Case("one number", lambda x: x[1], _of((2, 3))),
    Case("the whole", lambda x: x[..., :9], _of((2, 3))),
    Case("nothing", lambda x: x[..., 3:], _of((2, 3))),
    # normalization
    Case("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), _of((2, 3, 4), (4,))),
    Case("rms_norm, bare", lambda x: F.rms_norm(x, (3, 4), eps=0.1), _of((2, 3, 4))),
]  # fmt: skip
_BY_AUTOGRAD = [
    Case("add with alpha", lambda x, y: torch.add(x, y, alpha=3), _of((3, 4), (4,))),
    Case("sub with alpha", lambda x, y: torch.sub(x, y, alpha=3), _of((3, 4), (4,))),
    Case("masked_fill", lambda x: x.masked_fill(_CONDITION, 2.0), _of((3, 4))),
    Case("masked_fill, broadcast", lambda x: x.masked_fill(_CONDITION, 2.0), _of((4,))),
    Case("addmm", torch.addmm, _of((5,), (3, 4), (4, 5))),
    Case("gelu, tanh", lambda x: F.gelu(x, approximate="tanh"), _of((3, 4))),
    Case("to dtype", lambda x: x.to(torch.bfloat16), _of((3, 4))),
    Case("float", lambda x: x.float(), lambda: (tensor(3, 4, dtype=torch.bfloat16),)),
    Case("type_as", lambda x, y: x.type_as(y), lambda: (tensor(3), tensor(3, dtype=torch.float64, grad=False))),
    Case("contiguous", lambda x: x.contiguous(), lambda: (transposed(3, 4),)),
    Case("mm", torch.mm, _of((3, 4), (4, 5))),
    Case("mm, same twice", lambda x: torch.mm(x, x), _of((4, 4))),
    Case("bmm", torch.bmm, _of((2, 3, 4), (2, 4, 5))),
    Case("view", lambda x: x.view(4, 3), _of((3, 4))),
    Case("view, same shape", lambda x: x.view(3, 4), _of((3, 4))),
    Case("reshape", lambda x: x.reshape(-1), lambda: (transposed(3, 4),)),
    Case("flatten", lambda x: x.flatten(1), _of((2, 3, 4))),
    Case("unflatten", lambda x: x.unflatten(1, (2, 2)), _of((3, 4))),
    Case("ravel", torch.ravel, _of((2, 3))),
    Case("view_as", lambda x: x.view_as(_ZEROS), _of((4, 3))),
    Case("reshape_as", lambda x: x.reshape_as(_ZEROS), lambda: (transposed(4, 3),)),
    Case("squeeze", torch.squeeze, _of((3, 1, 4))),
    Case("squeeze one", lambda x: x.squeeze(1), _of((3, 1, 4))),
    Case("unsqueeze", lambda x: x.unsqueeze(-1), _of((3, 4))),
    Case("expand", lambda x: x.expand(2, 3, 4), _of((3, 1))),
    Case("expand_as", lambda x: x.expand_as(_ZEROS), _of((4,))),
    Case("broadcast_to", lambda x: torch.broadcast_to(x, (3, 4)), _of((3, 1))),
    Case("t", torch.t, _of((3, 4))),
    Case("T", lambda x: x.T, _of((3, 4))),
    Case("mT", lambda x: x.mT, _of((2, 3, 4))),
    Case("transpose", lambda x: x.transpose(0, -1), _of((2, 3, 4))),
    Case("permute", lambda x: x.permute(2, 0, -2), _of((2, 3, 4))),
    Case("split", lambda x: torch.split(x, 3, 1), _of((2, 7))),
    Case("split, sizes", lambda x: torch.split(x, (1, 0, 3)), _of((4, 2))),
    Case("split, some used", lambda x: torch.split(x, 3, 1)[1], _of((2, 7))),
    Case("split_with_sizes", lambda x: torch.split_with_sizes(x, (1, 3), -1), _of((2, 4))),
    Case("chunk", lambda x: x.chunk(2, -1), _of((3, 5))),
    Case("unbind", lambda x: x.unbind(1), _of((2, 3))),
    Case("narrow", lambda x: x.narrow(1, -2, 2), _of((2, 3))),
    Case("select", lambda x: x.select(1, -1), _of((2, 3))),
    Case("embedding", F.embedding, lambda: (torch.tensor([[1, 2, 1]]), tensor(4, 3))),
    Case("embedding, padding", lambda i, w: F.embedding(i, w, -3), lambda: (torch.tensor([1, 2]), tensor(4, 3))),
    Case("softmax", lambda x: F.softmax(x, -1), _of((3, 4))),
    Case("softmax, dtype", lambda x: F.softmax(x, 0, dtype=torch.float64), _of((3, 4))),
    Case("softmax of a scalar", lambda x: F.softmax(x, 0), _of(())),
    Case("log_softmax", lambda x: F.log_softmax(x, -1), lambda: (transposed(3, 4),)),
    Case("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), _of((2, 3, 4), (4,), (4,))),
    Case("layer_norm, bare", lambda x: F.layer_norm(x, (3, 4)), _of((2, 3, 4))),
    Case("layer_norm, weight alone", lambda w: F.layer_norm(_ZEROS, (4,), w), _of((4,))),
    Case("dropout", lambda x: F.dropout(x, 0.3), _of((30, 4))),
]  # fmt: skip

_OTHERS = (*_WITH_RULE, *(replace(case, by_autograd=True) for case in _BY_AUTOGRAD))
CASES = {case.name: case for case in (*_elementwise(), *_reductions(), *_OTHERS)}
