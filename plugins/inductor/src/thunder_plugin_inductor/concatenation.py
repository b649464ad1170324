"""Concatenation in Inductor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from thunder_plugin_inductor.pytorch_internals import ConcatKernel, TensorBox, pointwise_cat

_MOST_IN_ONE: Final = 2
"""Largest number of parts that one kernel computes, each for its share of the result."""


@contextmanager
def parts_by_themselves() -> Iterator[None]:
    """A context in which concatenations of three and more parts use a separate kernel for each part.

    Otherwise Inductor on a GPU uses one kernel, which loads the inputs of all parts for each element under masks.
    Measured on an H200 in the backward of rotary embeddings, which concatenates gradients of query, key and value (4 x
    2048 tokens of TinyLlama): 96 us with one kernel, 35 us with three.
    """
    in_one = pointwise_cat.value

    def concatenate(inputs: Sequence[Any], dim: int = 0) -> Any:
        if len(inputs) <= _MOST_IN_ONE:
            return in_one(inputs, dim)
        return TensorBox(ConcatKernel.create(inputs, dim))

    with mock.patch.object(pointwise_cat.owner, pointwise_cat.name, concatenate):
        yield
