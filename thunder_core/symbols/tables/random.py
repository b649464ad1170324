"""Random tensors, dropout and in-place fills with random numbers."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_CREATION = (Tag.RANDOM, Tag.CREATION)
_RANDOM = (Tag.RANDOM, Tag.TAKES_FLOATS)
_DROPOUT = (Tag.RANDOM, Tag.ELEMENTWISE)

_OPTIONS = "dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False"
_GENERATED = f"generator=None, {_OPTIONS}"
_LIKE = f"{_OPTIONS}, memory_format=None"


def _dropout(name: str, target: str, default: str) -> Row:
    """A dropout function. ``p`` and ``training`` are always written, since PyTorch's defaults differ between them."""
    return row(
        f"F.{name}(input, p, training)",
        f"F.{name}(input, p=0.5, training={default}, inplace=False)",
        f"torch.{target}(input, p, training/train)",
        target=f"torch.{target}",
        inplace=f"torch.{target}_(input, p, training/train)",
        method=False,
        tags=_DROPOUT,
    )


ROWS: list[Row] = [
    _dropout("dropout", "dropout", "True"),
    _dropout("alpha_dropout", "alpha_dropout", "False"),
    _dropout("feature_alpha_dropout", "feature_alpha_dropout", "False"),
    *[
        row(
            f"F.dropout{n}d(input, p=0.5, training=True)",
            f"F.dropout{n}d(input, p=0.5, training=True, inplace=False)",
            method=False,
            tags=_DROPOUT,
        )
        for n in (1, 2, 3)
    ],
    row(
        "F.rrelu(input, lower=0.125, upper=0.3333333333333333, training=False)",
        "F.rrelu(input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False)",
        target="torch.rrelu",
        inplace="torch.rrelu_",
        method=False,
        tags=_DROPOUT,
    ),
    row(
        "F.gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1)",
        method=False,
        tags=(*_RANDOM, Tag.STRAIGHT_THROUGH),
    ),
    *[row(f"torch.{name}(*size, {_GENERATED})", method=False, tags=_CREATION) for name in ("rand", "randn")],
    *[row(f"torch.{name}_like(input, *, {_LIKE})", method=False, tags=_CREATION) for name in ("rand", "randn")],
    row(
        f"torch.randint(high, size, *, {_GENERATED})",
        overloads=(f"low, high, size, *, {_GENERATED}",),
        method=False,
        tags=_CREATION,
    ),
    row(
        f"torch.randint_like(input, high, *, {_LIKE})",
        overloads=(f"input, low, high, *, {_LIKE}",),
        method=False,
        tags=_CREATION,
    ),
    row(f"torch.randperm(n, *, {_GENERATED})", method=False, tags=_CREATION),
    row("torch.normal(...)", method=False, tags=(*_CREATION, Tag.TAKES_FLOATS)),
    row("torch.poisson(input, generator=None)", method=False, tags=_RANDOM),
    row("torch.binomial(count, prob, generator=None)", method=False, tags=_RANDOM),
    row(
        "torch.bernoulli(input, *, generator=None)",
        "Tensor.bernoulli",
        overloads=("input, p, *, generator=None",),
        method=False,
        tags=_RANDOM,
    ),
    # the probabilities of the in-place variant are an argument, never the tensor
    row(
        "torch.ops.aten.bernoulli(input, p, *, generator=None)",
        inplace="Tensor.bernoulli_(input, p=0.5, *, generator=None)",
        method=False,
        tags=_RANDOM,
    ),
    row("torch.multinomial(input, num_samples, replacement=False, *, generator=None)", tags=_RANDOM),
    *rows(
        """
        Tensor.normal_(input, mean=0, std=1, *, generator=None)
        Tensor.uniform_(input, from=0, to=1, *, generator=None)
        Tensor.exponential_(input, lambd=1, *, generator=None)
        Tensor.geometric_(input, p, *, generator=None)
        Tensor.log_normal_(input, mean=1, std=2, *, generator=None)
        Tensor.cauchy_(input, median=0, sigma=1, *, generator=None)
        Tensor.random_(...)
        """,
        method=False,
        tags=_RANDOM,
    ),
]
