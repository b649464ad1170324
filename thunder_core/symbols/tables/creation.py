"""New tensors, tensors like others, and tensors that are written as a whole."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row

_TAGS = (Tag.CREATION,)
_OF_FLOATS = (Tag.CREATION, Tag.TAKES_FLOATS)

_OPTIONS = "dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False"
_LIKE = f"{_OPTIONS}, memory_format=None"

ROWS: list[Row] = [
    *[row(f"torch.{name}(*size, {_OPTIONS})", method=False, tags=_TAGS) for name in ("zeros", "ones")],
    row(f"torch.empty(*size, {_LIKE})", method=False, tags=_TAGS),
    row(f"torch.full(size, fill_value, *, {_OPTIONS})", method=False, tags=_OF_FLOATS),
    row(f"torch.empty_strided(size, stride, *, {_OPTIONS})", method=False, tags=_TAGS),
    row(f"torch.empty_permuted(size, physical_layout, *, {_OPTIONS})", method=False, tags=_TAGS),
    row(
        f"torch.arange(end, *, {_OPTIONS})", overloads=(f"start, end, step=1, *, {_OPTIONS}",), method=False, tags=_TAGS
    ),
    row(
        "torch.range(start, end, step=1, *, dtype=None, device=None, requires_grad=False, pin_memory=False)",
        method=False,
        tags=_TAGS,
    ),
    row(f"torch.linspace(start, end, steps, *, {_OPTIONS})", method=False, tags=_OF_FLOATS),
    row(f"torch.logspace(start, end, steps, base=10.0, *, {_OPTIONS})", method=False, tags=_OF_FLOATS),
    row(f"torch.eye(n, *, {_OPTIONS})", overloads=(f"n, m, *, {_OPTIONS}",), method=False, tags=_TAGS),
    row(f"torch.scalar_tensor(s, *, {_OPTIONS})", method=False, tags=_OF_FLOATS),
    row(f"torch.tril_indices(row, col, offset=0, *, {_OPTIONS})", method=False, tags=_TAGS),
    row(f"torch.triu_indices(row, col, offset=0, *, {_OPTIONS})", method=False, tags=_TAGS),
    row("torch.vander(x, N=None, increasing=False)", method=False, tags=_TAGS),
    *[row(f"torch.{name}_like(input, *, {_LIKE})", method=False, tags=_TAGS) for name in ("zeros", "ones", "empty")],
    row(f"torch.full_like(input, fill_value, *, {_LIKE})", method=False, tags=_OF_FLOATS),
    *[row(f"Tensor.new_{name}(input, *size, {_OPTIONS})", tags=_TAGS) for name in ("zeros", "ones", "empty")],
    row(f"Tensor.new_full(input, size, fill_value, *, {_OPTIONS})", tags=_OF_FLOATS),
    row(f"Tensor.new_empty_strided(input, size, stride, *, {_OPTIONS})", tags=_TAGS),
    row("Tensor.new_tensor(...)", tags=_OF_FLOATS),
    row("torch.tensor(...)", method=False, tags=_OF_FLOATS),
    row("torch.as_tensor(...)", method=False, tags=_OF_FLOATS),
    row("torch.asarray(...)", method=False, tags=_OF_FLOATS),
    *[
        row(f"torch.{name}_window(...)", method=False, tags=_TAGS)
        for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")
    ],
    row("torch.clone(input, *, memory_format=None)", tags=(Tag.COPY,)),
    row("torch.detach(input)", tags=(Tag.DETACH,)),
    row("Tensor.contiguous(input, *, memory_format=None)", tags=(Tag.COPY,)),
    row("Tensor.zero_(input)", tags=(Tag.FILL,)),
    row("Tensor.fill_(input, value)", tags=(Tag.FILL, Tag.TAKES_FLOATS)),
    row("Tensor.copy_(input, src/other, non_blocking=False)", tags=(Tag.FILL,), method=False),
]
