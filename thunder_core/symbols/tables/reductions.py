"""Reductions, scans and order statistics."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_TAGS = (Tag.REDUCTION, Tag.TAKES_FLOATS)

_BY_DIM = ("input, dim, keepdim=False",)
_MOMENTS = ("input, unbiased=True", "input, dim=None, *, correction, keepdim=False")
_STABLE = ("input, *, stable, dim=-1, descending=False",)

ROWS: list[Row] = [
    row("torch.max(input)", overloads=(*_BY_DIM, "input, other"), tags=_TAGS),
    row("torch.min(input)", overloads=(*_BY_DIM, "input, other"), tags=_TAGS),
    row("torch.median(input)", overloads=_BY_DIM, tags=_TAGS),
    row("torch.nanmedian(input)", overloads=_BY_DIM, tags=_TAGS),
    row("torch.var(input, dim, unbiased=True, keepdim=False)", overloads=_MOMENTS, tags=_TAGS),
    row("torch.std(input, dim, unbiased=True, keepdim=False)", overloads=_MOMENTS, tags=_TAGS),
    row("torch.var_mean(input, dim, unbiased=True, keepdim=False)", overloads=_MOMENTS, tags=_TAGS),
    row("torch.std_mean(input, dim, unbiased=True, keepdim=False)", overloads=_MOMENTS, tags=_TAGS),
    row("torch.prod(input, *, dtype=None)", overloads=("input, dim, keepdim=False, *, dtype=None",), tags=_TAGS),
    row("torch.sort(input, dim=-1, descending=False)", overloads=_STABLE),
    row("torch.argsort(input, dim=-1, descending=False)", overloads=_STABLE),
    row(
        "torch.norm(input, p='fro', dim=None, keepdim=False, *, dtype=None)",
        "torch.norm(input, p='fro', dim=None, keepdim=False, out=None, dtype=None)",
        tags=_TAGS,
    ),
    *rows(
        """
        torch.sum(input, dim=None, keepdim=False, *, dtype=None)
        torch.mean(input, dim=None, keepdim=False, *, dtype=None)
        torch.nansum(input, dim=None, keepdim=False, *, dtype=None)
        torch.nanmean(input, dim=None, keepdim=False, *, dtype=None)
        torch.amax(input, dim=(), keepdim=False)
        torch.amin(input, dim=(), keepdim=False)
        torch.aminmax(input, *, dim=None, keepdim=False)
        torch.argmax(input, dim=None, keepdim=False)
        torch.argmin(input, dim=None, keepdim=False)
        torch.all(input, dim=None, keepdim=False)
        torch.any(input, dim=None, keepdim=False)
        torch.count_nonzero(input, dim=None)
        torch.logsumexp(input, dim, keepdim=False) | special.logsumexp
        torch.mode(input, dim=-1, keepdim=False)
        torch.kthvalue(input, k, dim=-1, keepdim=False)
        torch.quantile(input, q, dim=None, keepdim=False, *, interpolation='linear')
        torch.nanquantile(input, q, dim=None, keepdim=False, *, interpolation='linear')
        torch.dist(input, other, p=2)
        torch.trace(input)
        torch.histc(input, bins=100, min=0, max=0)
        torch.cov(input, *, correction=1, fweights=None, aweights=None)
        torch.corrcoef(input)
        """,
        tags=_TAGS,
    ),
    *rows(
        """
        torch.cumsum(input, dim, *, dtype=None)
        torch.cumprod(input, dim, *, dtype=None)
        torch.cummax(input, dim)
        torch.cummin(input, dim)
        torch.logcumsumexp(input, dim)
        torch.diff(input, n=1, dim=-1, prepend=None, append=None)
        torch.topk(input, k, dim=-1, largest=True, sorted=True)
        torch.msort(input)
        torch.renorm(input, p, dim, maxnorm)
        """,
    ),
]
