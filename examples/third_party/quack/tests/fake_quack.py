"""The functions of quack 0.6.5 that the plugin calls, in PyTorch, with its signatures and assertions."""

import sys
import types

import torch


def rmsnorm_fwd(
    x, weight=None, bias=None, residual=None, out_dtype=None, residual_dtype=None, eps=1e-6, store_rstd=False,
    weight_offset=0.0,
):  # fmt: skip
    assert x.dim() == 2
    scale = torch.rsqrt(x.float().square().mean(-1) + eps)
    return (x.float() * scale[:, None] * (weight.float() + weight_offset)).to(x.dtype), x, scale


def rmsnorm_bwd(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False, weight_offset=0.0):
    normed, inner = x.float() * rstd[:, None], dout.float() * (weight.float() + weight_offset)
    of_x = (inner - normed * (inner * normed).mean(-1, keepdim=True)) * rstd[:, None]
    return of_x.to(x.dtype), (dout.float() * normed).sum(0).to(weight.dtype), None, None


def softmax_fwd(x):
    assert x.dim() == 2
    return x.softmax(-1)


def softmax_bwd(dy, y):
    assert dy.dim() == y.dim() == 2
    assert dy.dtype == y.dtype
    return (y.float() * (dy.float() - (dy.float() * y.float()).sum(-1, keepdim=True))).to(dy.dtype)


def cross_entropy_fwd(
    x, target, target_logit=None, weight=None, ignore_index=-100, return_lse=False, return_dx=False,
    inplace_backward=False,
):  # fmt: skip
    assert return_lse
    assert (x.dim(), target.dim()) == (2, 1)
    counted, sums = target != ignore_index, x.float().logsumexp(-1)
    chosen = x.float().gather(1, torch.where(counted, target, 0)[:, None])[:, 0]
    return torch.where(counted, sums - chosen, 0.0), sums


def cross_entropy_bwd(x, target, dloss, lse, weight=None, ignore_index=-100, inplace_backward=False):
    assert dloss.dim() == lse.dim() == 1
    counted = target != ignore_index
    classes = torch.nn.functional.one_hot(torch.where(counted, target, 0), x.shape[1])
    gradient = ((x.float() - lse[:, None]).exp() - classes) * dloss[:, None]
    return torch.where(counted[:, None], gradient, 0.0).to(x.dtype)


def install():
    """Make ``quack.rmsnorm`` and the like importable."""
    for name in ("rmsnorm", "softmax", "cross_entropy"):
        module = sys.modules[f"quack.{name}"] = types.ModuleType(f"quack.{name}")
        vars(module).update({key: value for key, value in globals().items() if key.startswith(name)})
    sys.modules.setdefault("quack", types.ModuleType("quack"))
