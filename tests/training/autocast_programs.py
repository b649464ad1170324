"""Small programs of two square matrices for each thing that autocast does to an operator on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

EYE = 3 * torch.eye(4)

LOWER: dict[str, Callable[..., Any]] = {
    "matmul": lambda x, y: x @ y.t(),
    "mm": lambda x, y: torch.mm(x, y.t()),
    "bmm": lambda x, y: torch.bmm(x[None], y[None].mT),
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "addbmm": lambda x, y: torch.addbmm(x, x[None], y[None]),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None], y[None]),
    "linear": lambda x, y: F.linear(x, y, y[0]),
    "conv1d": lambda x, y: F.conv1d(x[None], y[:, :, None]),
    "conv2d": lambda x, y: F.conv2d(x[None, None], y[None, None, :2, :2]),
    "conv_transpose1d": lambda x, y: F.conv_transpose1d(x[None], y[:, :, None]),
    "prelu": lambda x, y: F.prelu(x, y[0, :1]),
    "vecdot": lambda x, y: torch.linalg.vecdot(x, y),
    "sdpa": lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], (x * y)[None, None]),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "bilinear": lambda x, y: F.bilinear(x, y, torch.stack([x @ y.t(), y])),
}
FLOAT32: dict[str, Callable[..., Any]] = {
    "prod": lambda x, y: x.prod(1) * y.prod(),
    "cdist": lambda x, y: torch.cdist(x, y),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "l1_loss": lambda x, y: F.l1_loss(x, y),
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y),
    "huber_loss": lambda x, y: F.huber_loss(x, y),
    "nll_loss": lambda x, y: F.nll_loss(x.log_softmax(-1), torch.tensor([0, 1, 2, 3])) + y.sum(),
    "cross_entropy": lambda x, y: F.cross_entropy(x @ y, torch.tensor([0, 1, 2, 3])),
    "kl_div": lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    "bce_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach()),
    "cosine_embedding": lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(4)),
    "margin_ranking": lambda x, y: F.margin_ranking_loss(x, y, torch.ones(4, 4)),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, x * y),
    "polar": lambda x, y: torch.polar(x.abs(), y).real,
    "quantile": lambda x, y: torch.quantile(x, 0.3) + y.sum(),
    "trace": lambda x, y: torch.trace(x) + torch.trace(y @ x),
    "view_as_complex": lambda x, y: torch.view_as_complex(x.view(4, 2, 2)).abs() + y[:, :2],
    "fft": lambda x, y: torch.fft.rfft(x).abs() + torch.fft.ifft(y).real.sum(),
    "cholesky": lambda x, y: torch.linalg.cholesky((x @ x.mT).float() + EYE) + y,
    "inverse": lambda x, y: torch.inverse(x + EYE.to(x.dtype)) @ y,
    "svdvals": lambda x, y: torch.linalg.svdvals(x) * y,
    "solve": lambda x, y: torch.linalg.solve(x + EYE.to(x.dtype), y),
    "avg_pool3d": lambda x, y: F.avg_pool3d(x.view(1, 1, 2, 2, 4), 2) + y.sum(),
    "max_pool3d": lambda x, y: F.max_pool3d(x.view(1, 1, 2, 2, 4), 2) + y.sum(),
    "grid_sample": lambda x, y: F.grid_sample(x[None, None], y.view(1, 2, 4, 2).tanh(), align_corners=True),
}
PROMOTE: dict[str, Callable[..., Any]] = {
    "cat": lambda x, y: torch.cat([x, x @ y, y]),
    "stack": lambda x, y: torch.stack([x @ y, y], 1),
    "index_copy": lambda x, y: x.index_copy(0, torch.tensor([1, 0]), (x @ y)[:2].to(x.dtype)),
    "add": lambda x, y: x @ y + x,
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "where": lambda x, y: torch.where(x > 0, x @ y, x),
    "in place": lambda x, y: (x @ y).mul_(2).add_((x @ x).detach()),
    "into float32": lambda x, y: torch.zeros(4, 4).add_(x @ y) + y,
}
PROGRAMS = {"lower": LOWER, "float32": FLOAT32, "promote": PROMOTE}
