"""The two functions of FlashAttention-4 (4.0.0b36) that the plugin calls, in PyTorch, with their signatures."""

import sys
import types

import torch


def _scores(q, k, softmax_scale, causal):
    """Of (batch, heads, tokens, keys), in float32; keys are repeated for groups of heads."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * scale
    if causal:
        offset = k.shape[1] - q.shape[1]
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1 + offset), float("-inf"))
    return scores


def _flash_attn_fwd(q, k, v, softmax_scale=None, causal=False, return_lse=False):
    assert return_lse
    scores = _scores(q, k, softmax_scale, causal)
    weights = scores.softmax(-1)
    v = v.repeat_interleave(q.shape[2] // v.shape[2], 2)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v.float()).to(q.dtype), scores.logsumexp(-1), None, None, None


def _flash_attn_bwd(q, k, v, out, dout, lse, softmax_scale=None, causal=False, deterministic=False):
    assert deterministic
    assert lse.shape == (q.shape[0], q.shape[2], q.shape[1])
    with torch.enable_grad():
        leaves = [each.detach().float().requires_grad_() for each in (q, k, v)]
        weights = (_scores(*leaves[:2], softmax_scale, causal) - lse[..., None]).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        value = leaves[2].repeat_interleave(q.shape[2] // v.shape[2], 2)
        result = torch.einsum("bhqk,bkhd->bqhd", weights, value)
    gradients = torch.autograd.grad(result, leaves, dout.float())
    return tuple(each.to(q.dtype).contiguous() for each in gradients)


def install():
    """Make ``flash_attn.cute.interface`` importable."""
    for name in ("flash_attn", "flash_attn.cute", "flash_attn.cute.interface"):
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["flash_attn.cute.interface"]).update(
        _flash_attn_fwd=_flash_attn_fwd, _flash_attn_bwd=_flash_attn_bwd
    )
