"""Views, rearrangements, joining and splitting."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_TAGS = (Tag.SHAPE,)

ROWS: list[Row] = [
    row("torch.reshape(input, shape)", "Tensor.reshape(input, *shape)", tags=_TAGS),
    row("torch.permute(input, dims)", "Tensor.permute(input, *dims)", tags=_TAGS),
    row("torch.flip(input, dims)", "Tensor.flip(input, *dims)", tags=_TAGS),
    row("torch.tile(input, dims)", "Tensor.tile(input, *dims)", tags=_TAGS),
    row("torch.squeeze(input)", overloads=("input, dim",), tags=_TAGS),
    row("torch.split(input/tensor, split_size/split_size_or_sections, dim=0)", tags=_TAGS),
    row(
        "torch.repeat_interleave(input, repeats, dim=None, *, output_size=None)",
        overloads=("repeats, *, output_size=None",),
        tags=_TAGS,
    ),
    row("torch.as_strided(input, size, stride, storage_offset=None)", tags=(*_TAGS, Tag.STORAGE_VIEW)),
    row("torch.broadcast_tensors(...)", tags=_TAGS, method=False),
    row("torch.meshgrid(...)", tags=_TAGS, method=False),
    row("torch.atleast_1d(...)", tags=_TAGS, method=False),
    row("torch.atleast_2d(...)", tags=_TAGS, method=False),
    row("torch.atleast_3d(...)", tags=_TAGS, method=False),
    row("torch.block_diag(...)", tags=_TAGS, method=False),
    row("torch.cartesian_prod(...)", tags=_TAGS, method=False),
    row(
        "torch.nn.functional.pad(input, pad, mode='constant', value=None)",
        tags=(*_TAGS, Tag.TAKES_FLOATS),
        method=False,
    ),
    row(  # the derivative of slices
        "torch.ops.aten.slice_backward(grad_output, input_sizes, dim, start, end, step)",
        "torch.ops.aten.slice_backward.default",
        tags=_TAGS,
        method=False,
    ),
    *rows(
        """
        torch.cat(tensors, dim=0) | torch.concat | torch.concatenate
        torch.stack(tensors, dim=0)
        torch.hstack(tensors)
        torch.vstack(tensors) | torch.row_stack
        torch.dstack(tensors)
        torch.column_stack(tensors)
        torch.combinations(input, r=2, with_replacement=False)
        """,
        tags=_TAGS,
        method=False,
    ),
    *rows(
        """
        Tensor.view(input, *size)
        Tensor.view_as(input, other)
        Tensor.reshape_as(input, other)
        Tensor.expand(input, *size, implicit=False)
        Tensor.expand_as(input, other)
        Tensor.repeat(input, *repeats)
        Tensor.unfold(input, dimension, size, step)
        Tensor.sum_to_size(input, *size)
        torch.broadcast_to(input, size)
        torch.transpose(input, dim0/axis0, dim1/axis1) | torch.swapdims | torch.swapaxes
        torch.t(input)
        torch.adjoint(input)
        torch.movedim(input, source, destination) | torch.moveaxis
        torch.flatten(input, start_dim=0, end_dim=-1)
        torch.unflatten(input, dim, sizes)
        torch.ravel(input)
        torch.unsqueeze(input, dim)
        torch.fliplr(input)
        torch.flipud(input)
        torch.roll(input, shifts, dims=())
        torch.rot90(input, k=1, dims=(0, 1))
        torch.chunk(input, chunks, dim=0)
        torch.tensor_split(input, indices_or_sections/sections/indices, dim=0)
        torch.hsplit(input, indices_or_sections/sections/indices)
        torch.vsplit(input, indices_or_sections/sections/indices)
        torch.dsplit(input, indices_or_sections/sections/indices)
        torch.split_with_sizes(input, split_sizes, dim=0)
        torch.unbind(input, dim=0)
        torch.narrow(input, dim, start, length)
        torch.select(input, dim, index)
        torch.diagonal(input, offset=0, dim1=0, dim2=1)
        torch.diag(input, diagonal=0)
        torch.diag_embed(input, offset=0, dim1=-2, dim2=-1)
        torch.diagflat(input, offset=0)
        torch.tril(input, diagonal=0)
        torch.triu(input, diagonal=0)
        torch.view_as_real(input)
        torch.view_as_complex(input)
        torch.conj(input)
        torch.resolve_conj(input)
        torch.resolve_neg(input)
        """,
        tags=_TAGS,
    ),
]
