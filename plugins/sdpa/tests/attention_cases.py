"""Calls of attention for the tests: tensors and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Case:
    """One kind of call.

    Attributes:
        batch, heads, queries, size: of the query.
        key_heads, keys: of key and value, where others.
        sequence_first: whether tensors are transposed from (batch, length, heads, size).
        packed: whether query, key and value are slices of one tensor.
        mask: makes the mask for a device and a dtype.
        arguments: the others.
    """

    batch: int = 2
    heads: int = 4
    queries: int = 24
    size: int = 16
    key_heads: int | None = None
    keys: int | None = None
    sequence_first: bool = False
    packed: bool = False
    mask: Callable[[str, torch.dtype], torch.Tensor] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def tensors(self, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        """Query, key, value, and the mask if there is one."""
        torch.manual_seed(0)
        heads, keys = self.key_heads or self.heads, self.keys or self.queries
        shapes = [(self.batch, self.heads, self.queries, self.size)] + 2 * [(self.batch, heads, keys, self.size)]
        if self.packed:
            whole = torch.randn(self.batch, self.queries, 3, self.heads, self.size, device=device, dtype=dtype)
            made = [part.transpose(1, 2) for part in whole.unbind(2)]
        elif self.sequence_first:
            made = [torch.randn(b, n, h, d, device=device, dtype=dtype).transpose(1, 2) for b, h, n, d in shapes]
        else:
            made = [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]
        return made if self.mask is None else [*made, self.mask(device, dtype)]


def attention(case: Case) -> Callable[..., torch.Tensor]:
    """The call, as a program of its tensors."""

    def program(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        return F.scaled_dot_product_attention(query, key, value, mask, **case.arguments)

    return program


def truth(*shape: int) -> Callable[[str, torch.dtype], torch.Tensor]:
    """A mask that lets most pairs through, of each row at least one."""

    def make(device: str, dtype: torch.dtype) -> torch.Tensor:
        mask = torch.rand(*shape, device=device) > 0.3
        mask[..., 0] = True
        return mask

    return make


def added(*shape: int) -> Callable[[str, torch.dtype], torch.Tensor]:
    """A mask that is added."""
    return lambda device, dtype: torch.randn(*shape, device=device, dtype=dtype)


CASES = {
    "plain": Case(),
    "causal": Case(arguments={"is_causal": True}),
    "other keys": Case(keys=40),
    "scale": Case(arguments={"scale": 0.3}),
    "sequence first": Case(sequence_first=True, arguments={"is_causal": True}),
    "packed": Case(packed=True, arguments={"is_causal": True}),
    "grouped": Case(key_heads=2, arguments={"enable_gqa": True, "is_causal": True}),
    "one key head": Case(key_heads=1, arguments={"enable_gqa": True}),
    "truth": Case(mask=truth(24, 24)),
    "truth of four dimensions": Case(mask=truth(2, 1, 24, 24)),
    "added": Case(mask=added(2, 4, 24, 24)),
    "added rows": Case(mask=added(1, 1, 1, 24)),
    "unaligned mask": Case(queries=21, keys=19, mask=added(21, 19)),
    "grouped with a mask": Case(key_heads=2, mask=truth(2, 1, 24, 24), arguments={"enable_gqa": True}),
    "one query": Case(queries=1, keys=24),
    "one key": Case(queries=8, keys=1),
    "padded size": Case(size=20, arguments={"is_causal": True}),
    "large": Case(queries=200, keys=200, size=64, arguments={"is_causal": True}),
    "dropout": Case(queries=64, size=32, arguments={"dropout_p": 0.25}),
    "odd dropout": Case(queries=64, size=32, arguments={"dropout_p": 0.1, "is_causal": True}),
    "no batch": Case(batch=0),
    "no keys": Case(keys=24, queries=0),
}
