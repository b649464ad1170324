"""Cross entropy of logits (sizes: tokens, classes) and of a linear layer (sizes: tokens, features, classes)."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.operators.case import Case, Problem, normal, work_of

IGNORED = -100


def _loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, target)


def _float_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.float(), target)


def _linear_loss(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(functional.linear(hidden, weight), target)


def _target(tokens: int, classes: int) -> torch.Tensor:
    target = torch.randint(classes, (tokens,))
    target[::16] = IGNORED
    return target


def _liger_loss(f: Any, logits: torch.Tensor, target: torch.Tensor) -> Any:
    return f.liger_cross_entropy(logits, target)


def cross_entropy(dtype: torch.dtype, tokens: int, classes: int) -> Problem:
    """In the dtype of the logits; every sixteenth token is ignored."""
    return Problem(_loss, (normal(tokens, classes, dtype=dtype), _target(tokens, classes)), liger=_liger_loss)


def float_cross_entropy(dtype: torch.dtype, tokens: int, classes: int) -> Problem:
    """With logits cast to float32, as in Hugging Face models."""
    arguments = (normal(tokens, classes, dtype=dtype), _target(tokens, classes))
    return Problem(_float_loss, arguments, exact=_loss, liger=_liger_loss)


def linear_cross_entropy(dtype: torch.dtype, tokens: int, inner: int, classes: int) -> Problem:
    """The head of a language model and its loss."""
    hidden, weight = normal(tokens, inner, dtype=dtype), normal(classes, inner, dtype=dtype, scale=inner**-0.5)
    return Problem(
        _linear_loss,
        (hidden, weight, _target(tokens, classes)),
        work=work_of([(tokens, classes, inner)], [(tokens, inner, classes), (classes, inner, tokens)]),
        liger=lambda f, *arguments: f.liger_fused_linear_cross_entropy(*arguments),
    )


CASES = (
    Case("cross_entropy", "F.cross_entropy", cross_entropy, ((8192, 32000), (4096, 128256)), ((32, 500),)),
    Case("cross_entropy", "of logits.float()", float_cross_entropy, ((8192, 32000),), ((32, 500),)),
    Case("linear_cross_entropy", "F.linear, F.cross_entropy", linear_cross_entropy, ((8192, 2048, 32000),
         (4096, 4096, 128256)), ((32, 64, 500),)),
)  # fmt: skip
