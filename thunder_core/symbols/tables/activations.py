"""Activation functions."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row

_TAGS = (Tag.ELEMENTWISE,)

ROWS: list[Row] = [
    row("torch.relu(input)", "F.relu(input, inplace=False)", tags=_TAGS),
    row("torch.selu(input)", "F.selu(input, inplace=False)", tags=_TAGS),
    row("torch.celu(input, alpha=1.0)", "F.celu(input, alpha=1.0, inplace=False)", tags=_TAGS),
    row("torch.threshold(input, threshold, value)", "F.threshold(input, threshold, value, inplace=False)", tags=_TAGS),
    row("torch.prelu(input, weight)", tags=_TAGS),
    row("torch.nn.functional.gelu(input, *, approximate='none')", method=False, tags=_TAGS),
    row(
        "F.silu(input)", "F.silu(input, inplace=False)", target="nn.silu", inplace="nn.silu_", method=False, tags=_TAGS
    ),
    row(
        "F.mish(input)", "F.mish(input, inplace=False)", target="nn.mish", inplace="nn.mish_", method=False, tags=_TAGS
    ),
    row(
        "F.relu6(input)",
        "F.relu6(input, inplace=False)",
        target="nn.relu6",
        inplace="nn.relu6_",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.hardswish(input)",
        "F.hardswish(input, inplace=False)",
        target="nn.hardswish",
        inplace="nn.hardswish_",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.hardsigmoid(input)",
        "F.hardsigmoid(input, inplace=False)",
        target="nn.hardsigmoid",
        inplace="nn.hardsigmoid_",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.hardtanh(input, min_val=-1.0, max_val=1.0)",
        "F.hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False)",
        inplace="nn.hardtanh_",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.elu(input, alpha=1.0)",
        "F.elu(input, alpha=1.0, inplace=False)",
        target="nn.elu",
        inplace="nn.elu_",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.leaky_relu(input, negative_slope=0.01)",
        "F.leaky_relu(input, negative_slope=0.01, inplace=False)",
        target="nn.leaky_relu",
        inplace="nn.leaky_relu_",
        method=False,
        tags=_TAGS,
    ),
    row("F.softplus(input, beta=1, threshold=20)", method=False, tags=_TAGS),
    row("F.softshrink(input, lambd=0.5)", method=False, tags=_TAGS),
    row("torch.hardshrink(input, lambd=0.5)", tags=_TAGS),
    row("F.logsigmoid(input)", method=False, tags=_TAGS),
    row("F.softsign(input)", method=False, tags=_TAGS),
    row("F.tanhshrink(input)", method=False, tags=_TAGS),
    row("F.glu(input, dim=-1)", method=False),
    row(
        "torch.softmax(input, dim!, dtype=None)", "F.softmax(input, dim, _stacklevel=3, dtype=None)", "special.softmax"
    ),
    row(
        "torch.log_softmax(input, dim!, dtype=None)",
        "F.log_softmax(input, dim, _stacklevel=3, dtype=None)",
        "special.log_softmax",
    ),
    row("F.softmin(input, dim!, *, dtype=None)", "F.softmin(input, dim, _stacklevel=3, dtype=None)", method=False),
]
