"""The autocast class of each symbol, from PyTorch's operator reference for autocast.

Names are printed names without ``torch.`` (and ``F.`` for ``torch.nn.functional.``). Symbols that call several others
(``F.cross_entropy``, ``F.interpolate``) have no entry: autocast acts on the inner calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import torch

from thunder_core.ir.symbol import Autocast, Symbol
from thunder_core.pytorch_internals import dispatch_has_kernel_for_dispatch_key
from thunder_core.symbols.row import expand

CLEAR_CACHE: Final = Symbol("torch.clear_autocast_cache", torch.clear_autocast_cache)
"""Separates the ops of two autocast regions: the second does not reuse the casts of the first."""

_LOWER_PRECISION: Final = """
    matmul linalg.vecdot mm bmm addmm baddbmm addbmm F.linear prelu F.scaled_dot_product_attention
    F.conv1d F.conv2d F.conv3d F.conv_transpose1d F.conv_transpose2d F.conv_transpose3d
"""

_LOWER_PRECISION_CUDA: Final = """
    mv addmv addr einsum chain_matmul linalg.multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
"""

_FLOAT32: Final = """
    prod cdist F.mse_loss F.l1_loss F.smooth_l1_loss F.huber_loss F.binary_cross_entropy_with_logits F.kl_div F.nll_loss
    F.hinge_embedding_loss F.cosine_embedding_loss F.margin_ranking_loss F.soft_margin_loss F.multilabel_margin_loss
    F.multi_margin_loss F.triplet_margin_loss F.poisson_nll_loss
"""

_FLOAT32_CUDA: Final = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow F.softplus softmax log_softmax
    F.layer_norm F.group_norm sum cumsum cumprod norm linalg.vector_norm linalg.matrix_norm logsumexp dist
    renorm F.cosine_similarity F.pdist
"""

# Operator, name and device type of classes that not all versions of PyTorch have: not 2.11, and not 2.15.
_FLOAT32_OF_SOME: Final = (("aten::rms_norm", "F.rms_norm", "cuda"), ("aten::cholesky", "cholesky", "cpu"))

_FLOAT32_CPU: Final = """
    polar quantile nanquantile trace view_as_complex stft F.avg_pool3d F.max_pool3d F.adaptive_avg_pool3d
    F.adaptive_max_pool3d F.max_unpool2d F.max_unpool3d F.binary_cross_entropy F.ctc_loss cholesky_inverse
    cholesky_solve inverse fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2
    fft.irfft2 fft.fftn fft.ifftn fft.rfftn fft.irfftn linalg.cond linalg.cholesky linalg.cholesky_ex linalg.qr
    linalg.svd linalg.svdvals linalg.eig linalg.eigvals linalg.eigh linalg.eigvalsh linalg.solve linalg.inv_ex
    linalg.lstsq linalg.householder_product linalg.tensorinv linalg.tensorsolve
"""

# Of those, the symbols for which autocast sets the option ``dtype`` to float32 instead of casting arguments.
_RESULT_DTYPE_CUDA: Final = """
    prod cumprod cumsum sum softmax log_softmax norm linalg.vector_norm linalg.matrix_norm
"""

_PROMOTE_CUDA: Final = "addcdiv addcmul atan2 F.bilinear cross dot vdot index_put tensordot scatter_add"
_PROMOTE_CPU: Final = "cat stack index_copy"
_REFUSE_CUDA: Final = "F.binary_cross_entropy"

_TABLES: Final = (
    (_LOWER_PRECISION, ("cpu", "cuda"), Autocast.LOWER_PRECISION),
    (_LOWER_PRECISION_CUDA, ("cuda",), Autocast.LOWER_PRECISION),
    (_FLOAT32, ("cpu", "cuda"), Autocast.FLOAT32),
    (_FLOAT32_CUDA, ("cuda",), Autocast.FLOAT32),
    (_FLOAT32_CPU, ("cpu",), Autocast.FLOAT32),
    (_PROMOTE_CUDA, ("cuda",), Autocast.PROMOTE),
    (_PROMOTE_CPU, ("cpu",), Autocast.PROMOTE),
    (_REFUSE_CUDA, ("cuda",), Autocast.REFUSE),
)


def autocast_of(name: str) -> Mapping[str, Autocast]:
    """Autocast classes by device type, for the symbol that is printed as ``name``."""
    return autocast_classes().get(name, {})


@cache
def has_result_dtype(printed: str, device_type: str) -> bool:
    """Whether autocast sets the option ``dtype`` of the symbol that is printed as ``printed``, if the call does not."""
    return device_type == "cuda" and printed in {f"torch.{name}" for name in _RESULT_DTYPE_CUDA.split()}


@cache
def autocast_classes() -> dict[str, dict[str, Autocast]]:
    """The autocast classes of all symbols, by printed name and device type."""
    classes: dict[str, dict[str, Autocast]] = {}
    present = [
        (name, (device_type,), Autocast.FLOAT32)
        for operator, name, device_type in _FLOAT32_OF_SOME
        if _has_kernel(operator, f"Autocast{device_type.upper()}")
    ]
    for names, device_types, autocast in (*_TABLES, *present):
        for short in names.split():
            name = expand(short)
            name = name if name.startswith("torch.") else f"torch.{name}"
            classes.setdefault(name, {}).update(dict.fromkeys(device_types, autocast))
    return classes


def _has_kernel(operator: str, key: str) -> bool:
    try:
        return bool(dispatch_has_kernel_for_dispatch_key(operator, key))
    except RuntimeError:  # there is no such operator
        return False
