"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_sdpa
from thunder_plugin_sdpa.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def operator(start: str) -> Callable[[Any], None]:
    """A check of the first arguments in an operator's schema."""

    def check(overload: Any) -> None:
        found = " ".join(argument.name for argument in overload._schema.arguments)
        assert found.startswith(start), found

    return check


def formula(function: Any) -> None:
    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    found, weights = function(q, k, v, is_causal=True)
    expected = torch.softmax((q @ k.mT / 2).masked_fill(~torch.ones(3, 3).tril().bool(), -torch.inf), -1)
    assert torch.allclose(weights, expected, atol=1e-6)
    assert torch.allclose(found, expected @ v, atol=1e-6)


CHECKS: dict[str, Callable[..., object]] = {
    "scaled_dot_product_attention_math": formula,
    "aten_cudnn_attention": operator("query key value attn_bias compute_log_sumexp dropout_p is_causal"),
    "aten_cudnn_attention_backward": operator("grad_out query key value out logsumexp philox_seed philox_offset"),
    "aten_efficient_attention": operator("query key value attn_bias compute_log_sumexp dropout_p is_causal"),
    "aten_efficient_attention_backward": operator("grad_out_ query key value attn_bias out logsumexp philox_seed"),
    "aten_flash_attention": operator("query key value dropout_p is_causal return_debug_mask"),
    "aten_flash_attention_backward": operator("grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k"),
    "aten_flash_attention_for_cpu": operator("query key value dropout_p is_causal"),
    "aten_flash_attention_for_cpu_backward": operator("grad_out query key value out logsumexp dropout_p is_causal"),
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_sdpa.__file__).parent])
