"""Losses and distances. The deprecated ``size_average`` and ``reduce`` are not part of the canonical calls."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_TAGS = (Tag.LOSS, Tag.TAKES_FLOATS)


def _loss(name: str, first: str, deprecated: str = "size_average=None, reduce=None, ", *, last: str = "") -> Row:
    """A loss of ``first``, then the deprecated parameters, then ``reduction`` and the parameters in ``last``.

    What comes after the deprecated parameters has no fixed position without them, so it is passed by keyword.
    """
    end = f", {last}" if last else ""
    canonical = f"F.{name}({first}, *, reduction='mean'{end})"
    return row(canonical, f"F.{name}({first}, {deprecated}reduction='mean'{end})", method=False, tags=_TAGS)


ROWS: list[Row] = [
    _loss("mse_loss", "input, target", last="weight=None"),
    _loss("l1_loss", "input, target", last="weight=None"),
    _loss("smooth_l1_loss", "input, target", last="beta=1.0"),
    _loss("binary_cross_entropy", "input, target, weight=None"),
    _loss("binary_cross_entropy_with_logits", "input, target, weight=None", last="pos_weight=None"),
    _loss("kl_div", "input, target", last="log_target=False"),
    _loss("hinge_embedding_loss", "input, target, margin=1.0"),
    _loss("cosine_embedding_loss", "input1, input2, target, margin=0"),
    _loss("margin_ranking_loss", "input1, input2, target, margin=0"),
    _loss("soft_margin_loss", "input, target"),
    _loss("multilabel_margin_loss", "input, target"),
    _loss("multilabel_soft_margin_loss", "input, target, weight=None"),
    _loss("multi_margin_loss", "input, target, p=1, margin=1.0, weight=None"),
    _loss("triplet_margin_loss", "anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False"),
    row(
        "F.nll_loss(input, target, weight=None, *, ignore_index=-100, reduction='mean')",
        "F.nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean')",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.cross_entropy(input, target, weight=None, *, ignore_index=-100, reduction='mean', label_smoothing=0.0)",
        "F.cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, "
        "reduction='mean', label_smoothing=0.0)",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.poisson_nll_loss(input, target, log_input=True, full=False, *, eps=1e-08, reduction='mean')",
        "F.poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, "
        "reduction='mean')",
        method=False,
        tags=_TAGS,
    ),
    *rows(
        """
        F.huber_loss(input, target, reduction='mean', delta=1.0, weight=None)
        F.gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction='mean')
        F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction='mean', zero_infinity=False)
        F.cosine_similarity(x1, x2, dim=1, eps=1e-08)
        F.pairwise_distance(x1, x2, p=2, eps=1e-06, keepdim=False)
        F.pdist(input, p=2)
        """,
        method=False,
        tags=_TAGS,
    ),
]
