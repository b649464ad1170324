"""Random imperative programs: lists of steps, interpreted on a pool of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Step = tuple[int, int, int, int]
"""Which operation, on which tensor of the pool, with which other one, with which number."""

Pool = list[torch.Tensor]


def make_inputs(kind: int) -> Pool:
    """Inputs of different kinds: dense, parts of unseen storage, overlapping, with and without gradients."""
    generator = torch.Generator().manual_seed(kind)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    first = random(3, 4)
    second = random(6, 8)[::2, 1:5] if kind % 2 else random(3, 4)
    third = (second[1:] if kind % 3 == 0 else second.t()) if kind % 4 else random(4)
    fourth = random(3, 4).requires_grad_()
    return [first, second, third, fourth, fourth * 2.0]


def make_program(steps: list[Step], results: list[int], grad: bool = True) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The function that does the steps and returns the tensors of the pool that ``results`` points to."""

    def program(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.set_grad_enabled(grad):
            pool = list(inputs)
            for operation, one, other, number in steps:
                x, y = pool[one % len(pool)], pool[other % len(pool)]
                result = OPERATIONS[operation % len(OPERATIONS)](x, y, number)
                if result is not None and all(result is not item for item in pool):
                    pool.append(result)
            return tuple(pool[index % len(pool)] for index in results)

    return program


def _view(function: Callable[[torch.Tensor, int], Any], dims: int = 1) -> Callable[..., Any]:
    def apply(x: torch.Tensor, _: torch.Tensor, n: int) -> Any:
        return function(x, n) if x.ndim >= dims and x.numel() > 1 else None

    return apply


def _fitting(function: Callable[[torch.Tensor, torch.Tensor, int], Any]) -> Callable[..., Any]:
    """``y`` is made to fit ``x`` by slicing or broadcasting; None when it does not."""

    def apply(x: torch.Tensor, y: torch.Tensor, n: int) -> Any:
        try:
            shape = torch.broadcast_shapes(x.shape, y.shape)
        except RuntimeError:
            return None
        return function(x, y, n) if shape == x.shape else None

    return apply


def _in_place(function: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[..., Any]:
    """In-place with a second operand that does not overlap the first, which would be undefined in eager."""
    return _fitting(lambda x, y, n: function(x, y if y is x else y.clone()))


def _whole(function: Callable[[torch.Tensor, int], Any]) -> Callable[..., Any]:
    return lambda x, _, n: function(x, n)


def _no_grad_add(x: torch.Tensor, n: int) -> None:
    with torch.no_grad():
        x.add_(n)


def _no_grad_view_write(x: torch.Tensor, n: int) -> None:
    with torch.no_grad():
        x[0].mul_(n)


def _set(index: Callable[[torch.Tensor, int], Any], value: Callable[[torch.Tensor, torch.Tensor, int], Any]) -> Any:
    def apply(x: torch.Tensor, y: torch.Tensor, n: int) -> None:
        if x.ndim >= 1 and x.shape[0] > 1:
            x[index(x, n)] = value(x, y, n)

    return apply


def _set_tensor(x: torch.Tensor, y: torch.Tensor, n: int) -> None:
    if x.ndim >= 1 and y.ndim >= 1 and y.shape[-1] == x.shape[-1] and y.ndim <= x.ndim and y.shape[0] > 1:
        part = y[0] if y.ndim == x.ndim else y
        x[n % x.shape[0]] = part


def _out(x: torch.Tensor, y: torch.Tensor, n: int) -> Any:
    if x.requires_grad or y.requires_grad or x.shape != y.shape:
        return None
    return torch.add(y, n, out=x)


def _index_copy(x: torch.Tensor, y: torch.Tensor, n: int) -> Any:
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or x.shape[0] < 2 or y.shape[0] < 2:
        return None
    return x.index_copy_(0, torch.tensor([1, 0]), y[:2] * 1)


def _transpose_in_place(x: torch.Tensor, y: torch.Tensor, n: int) -> Any:
    if x.ndim != 2:
        return None
    return (x * 1).t_()


# Writes through `.data` are not here: eager computes wrong gradients from values that were overwritten unseen.
OPERATIONS: list[Callable[..., Any]] = [
    _view(lambda x, n: x[n % x.shape[0]]),
    _view(lambda x, n: x[n % x.shape[0] :]),
    _view(lambda x, n: x[..., ::2]),
    _view(lambda x, n: x[1:, n % x.shape[1]] if x.shape[0] > 1 else None, 2),
    _view(lambda x, n: x.transpose(0, -1)),
    _view(lambda x, n: x.reshape(-1)),
    _view(lambda x, n: x.unsqueeze(n % 2)),
    _view(lambda x, n: x.unbind(0)[-1]),
    _view(lambda x, n: x.split(1)[0]),
    _view(lambda x, n: x.diagonal(), 2),
    _view(lambda x, n: x.narrow(-1, 0, 1)),
    _view(lambda x, n: x.as_strided((2,), (1,), x.storage_offset())),
    _whole(lambda x, n: x.detach()),
    _whole(lambda x, n: x.view_as(x)),
    _whole(lambda x, n: x.expand(2, *x.shape)),
    _whole(lambda x, n: x.contiguous()),
    _whole(lambda x, n: x * 2),
    _whole(lambda x, n: x.sin()),
    _whole(lambda x, n: x.clone()),
    _whole(lambda x, n: x.sum()),
    _fitting(lambda x, y, n: x + y),
    _fitting(lambda x, y, n: x * y),
    _in_place(lambda x, y: x.add_(y)),
    _in_place(lambda x, y: x.mul_(y)),
    _in_place(lambda x, y: x.copy_(y)),
    _whole(lambda x, n: x.add_(n)),
    _whole(lambda x, n: x.mul_(0.5)),
    _whole(lambda x, n: x.sin_()),
    _whole(lambda x, n: x.clamp_(min=-1.0)),
    _whole(lambda x, n: torch.nn.functional.leaky_relu(x, inplace=True)),
    _whole(lambda x, n: x.zero_()),
    _whole(lambda x, n: x.masked_fill_(x > 0, 0.5)),
    _whole(lambda x, n: x.detach().add_(1)),
    _whole(_no_grad_add),
    _view(_no_grad_view_write),
    _set(lambda x, n: n % x.shape[0], lambda x, y, n: float(n)),
    _set(lambda x, n: slice(None, None, 2), lambda x, y, n: n),
    _set(lambda x, n: (Ellipsis, 0), lambda x, y, n: y.sum()),
    _set(lambda x, n: [1, 0], lambda x, y, n: 1.5),
    _set(lambda x, n: x > 0.5, lambda x, y, n: n),
    _set(lambda x, n: torch.tensor([0, 1]), lambda x, y, n: x[:1] * 3),
    _set(lambda x, n: None, lambda x, y, n: 2.0),
    _set_tensor,
    _out,
    _index_copy,
    _transpose_in_place,
    _whole(lambda x, n: x.clone().normal_()),
    _whole(lambda x, n: x.uniform_()),
]
