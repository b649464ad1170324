"""Gathering, scattering, masking and searching."""

from typing import Any

import torch

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_TAGS = (Tag.INDEXING, Tag.TAKES_FLOATS)


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> Any:
    """With an error for classes out of range, as in `torch.nn.functional.one_hot`, which does not check fakes."""
    if num_classes < 1:
        return NotImplemented
    classes = torch.arange(num_classes, device=tensor.device)
    checked = torch.gather(classes, 0, tensor.reshape(-1)).reshape(tensor.shape)
    return (checked.unsqueeze(-1) == classes).to(torch.int64)


ROWS: list[Row] = [
    row(
        "torch.scatter(input, dim, index, src)",
        overloads=(
            "input, dim, index, src, *, reduce",
            "input, dim, index, value",
            "input, dim, index, value, *, reduce",
        ),
        tags=_TAGS,
    ),
    row("torch.index_fill(input, dim, index, value)", tags=_TAGS),
    row(
        "torch.isin(elements/element, test_elements/test_element, *, assume_unique=False, invert=False)",
        tags=_TAGS,
        method=False,
    ),
    row(
        "torch.searchsorted(sorted_sequence, input/self, *, out_int32=False, right=False, side=None, sorter=None)",
        tags=_TAGS,
        method=False,
    ),
    row("torch.bucketize(input, boundaries, *, out_int32=False, right=False)", tags=_TAGS, method=False),
    # flags by keyword: by position PyTorch's dispatch takes some of them for others
    row(
        "torch.unique(input, *, sorted=True, return_inverse=False, return_counts=False, dim=None)",
        "Tensor.unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None)",
        tags=_TAGS,
    ),
    row(
        "torch.unique_consecutive(input, *, return_inverse=False, return_counts=False, dim=None)",
        "Tensor.unique_consecutive(input, return_inverse=False, return_counts=False, dim=None)",
        tags=_TAGS,
    ),
    row("torch.unravel_index(indices, shape)", tags=_TAGS, method=False),
    row(
        "torch.segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, "
        "initial=None)",
        tags=_TAGS,
        method=False,
    ),
    row("torch.nn.functional.one_hot(input/tensor, num_classes=-1)", tags=_TAGS, method=False, decomposition=_one_hot),
    *rows(
        """
        torch.gather(input, dim, index, *, sparse_grad=False)
        torch.scatter_add(input, dim, index, src)
        torch.scatter_reduce(input, dim, index, src, reduce, *, include_self=True)
        torch.index_select(input, dim, index)
        torch.index_add(input, dim, index, source, *, alpha=1)
        torch.index_copy(input, dim, index, source)
        torch.index_put(input, indices, values, accumulate=False)
        torch.index_reduce(input, dim, index, source, reduce, *, include_self=True)
        torch.masked_fill(input, mask, value)
        torch.masked_scatter(input, mask, source)
        torch.masked_select(input, mask)
        torch.take(input, index)
        torch.take_along_dim(input, indices, dim=None)
        torch.put(input, index, source, accumulate=False)
        torch.nonzero(input, *, as_tuple=False)
        torch.argwhere(input)
        torch.select_scatter(input, src, dim, index)
        torch.slice_scatter(input, src, dim=0, start=None, end=None, step=1)
        torch.diagonal_scatter(input, src, offset=0, dim1=0, dim2=1)
        torch.as_strided_scatter(input, src, size, stride, storage_offset=None)
        torch.bincount(input, weights=None, minlength=0)
        """,
        tags=_TAGS,
    ),
]
