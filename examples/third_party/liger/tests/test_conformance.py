"""Every claim against PyTorch; all dtypes on a GPU, float32 in the interpreter."""

import torch
import torch.nn.functional as F

import thunder_plugin_composites as composites
from thunder_testing import executor_suite


def norms(device, dtype):
    x, weight = torch.randn(2, 3, 6, device=device, dtype=dtype), torch.randn(6, device=device, dtype=dtype)
    yield (x, weight, 1e-5), {}
    yield (x, weight, 1e-3, True), {}
    yield (x[0], weight, 1e-3, False, True), {}


def torch_norms(device, dtype):
    for (x, weight, eps, *_), _ in norms(device, dtype):
        yield (x, (6,), weight, eps), {}
        yield (x, (6,)), {"eps": eps}


def layer_norms(device, dtype):
    for (x, weight, eps, *_), _ in norms(device, dtype):
        yield (x, (6,), weight, weight.flip(0), eps), {}


def swiglus(device, dtype):
    yield tuple(torch.randn(2, 3, 5, device=device, dtype=dtype)), {}


def geglus(device, dtype):
    yield tuple(torch.randn(2, 3, 5, device=device, dtype=dtype)), {"approximate": "tanh"}


def losses(device, dtype):
    x, weight = (torch.randn(n, 5, device=device, dtype=dtype) for n in (6, 7))
    target = torch.tensor([0, 4, -100, 1, 2, 6], device=device)
    yield (x, weight, target), {"label_smoothing": 0.1}
    yield (x, weight, target, weight[:, 0].contiguous()), {"reduction": "sum", "upcast": True, "ignore_index": 4}
    yield (x.view(2, 3, 5), weight, target[:4]), {"stop": -1, "reduction": "none"}
    yield (x.view(2, 3, 5), weight, target[:4]), {"start": 1}


SAMPLES = {
    composites.rms_norm: norms,
    composites.swiglu: swiglus,
    composites.geglu: geglus,
    composites.linear_cross_entropy: losses,
    F.rms_norm: torch_norms,
    F.layer_norm: layer_norms,
}
CUDA = torch.cuda.is_available()
test_conformance = executor_suite(
    "liger",
    devices=("cuda",) if CUDA else ("cpu",),
    dtypes=None if CUDA else (torch.float32,),
    samples=SAMPLES,
    limit=8 if CUDA else 3,
)
