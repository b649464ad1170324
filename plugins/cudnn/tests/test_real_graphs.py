"""The graphs, built by the library itself. It needs no GPU for that: cuDNN compiles for a GPU that is described to it.

Skipped where ``nvidia-cudnn-frontend``, or the cuDNN library that it loads, is not installed.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import fake_cudnn
import pytest
import torch

from thunder_plugin_cudnn.attention_graphs import attention_backward, attention_forward
from thunder_plugin_cudnn.layouts import Layout, canonical_layout, ordered_strides
from thunder_plugin_cudnn.norm_graphs import norm_backward, norm_forward

try:
    import cudnn

    VERSION = cudnn.backend_version()
except (ImportError, RuntimeError) as error:
    pytest.skip(f"cuDNN or its frontend is not installed: {error}", allow_module_level=True)

H200 = {
    "cudaDeviceId": 0,
    "deviceVer": 900,
    "driverVer": 13000,
    "totalGlobalMem": 150_000_000_000,
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "multiProcessorCount": 132,
    "regsPerBlock": 65536,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 3201000,
    "l2CacheSize": 62914560,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536,
    "pciDeviceId": 0,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "deviceName": "NVIDIA H200",
}


def built(build: Any, *description: Any) -> Any:
    """The graph for a GPU that is only described, as far as it goes without a driver."""
    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        name=build.__name__,
        intermediate_data_type=single,
        compute_data_type=single,
        sm_version=90,
        device_property=cudnn.create_device_properties(json.dumps(H200)),
    )
    build(graph, *description)
    graph.validate()
    graph.build_operation_graph()
    return graph


def layout(*shape: int, heads_inside: bool = True, dtype: torch.dtype = torch.bfloat16) -> Layout:
    order = (shape[1] * shape[2], 1, shape[1], 0) if heads_inside else (3, 2, 1, 0)
    return canonical_layout(dtype, shape, ordered_strides(shape, order))


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "heads outside": {"heads_inside": False},
    "causal": {"causal": True},
    "more queries": {"causal": True, "queries": 192},
    "grouped": {"key_heads": 2, "causal": True},
    "unequal sizes": {"size": 192, "value_size": 128},
    "odd lengths": {"queries": 37, "keys": 51},
    "bias": {"bias": (2, 1, 128, 128)},
    "bias of keys": {"bias": (2, 1, 1, 128)},
    "bias and its gradient": {"bias": (1, 8, 128, 128), "of_bias": True},
    "dropout": {"dropout": 0.1},
    "deterministic": {"deterministic": True},
}


@pytest.mark.parametrize("name", CASES)
def test_attention(name: str) -> None:
    case = dict(CASES[name])
    queries, keys = case.pop("queries", 128), case.pop("keys", 128)
    size, inside = case.pop("size", 64), case.pop("heads_inside", True)
    value_size = case.pop("value_size", size)
    key_heads, causal = case.pop("key_heads", 8), case.pop("causal", False)
    query = layout(2, 8, queries, size, heads_inside=inside)
    key = layout(2, key_heads, keys, size, heads_inside=inside)
    value = layout(2, key_heads, keys, value_size, heads_inside=inside)
    output = layout(2, 8, queries, value_size, heads_inside=inside)
    shape = case.pop("bias", None)
    bias = None if shape is None else layout(*shape, heads_inside=False)
    numbers = (causal, 0.125, case.pop("dropout", 0.0))
    built(attention_forward, query, key, value, output, bias, *numbers, True)
    built(attention_forward, query, key, value, output, bias, *numbers, False)
    of_bias = bias if case.pop("of_bias", False) else None
    gradients = (query, key, value)
    deterministic = case.pop("deterministic", False)
    built(attention_backward, query, key, value, output, output, gradients, bias, of_bias, *numbers, deterministic)
    assert not case


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("of_weight", ["same", "float32", "none"])
@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_norms(kind: str, of_weight: str, dtype: torch.dtype) -> None:
    weight = {"same": dtype, "float32": torch.float32, "none": None}[of_weight]
    for statistics in (False, True):
        built(norm_forward, kind, 512, 96, dtype, weight, weight if kind == "layernorm" else None, 1e-5, statistics)
    built(norm_backward, kind, 512, 96, dtype, weight)


@pytest.mark.parametrize(
    "name", ["sdpa", "sdpa_backward", "layernorm", "layernorm_backward", "rmsnorm", "rmsnorm_backward"]
)
def test_the_fake_has_parameters_of_the_library(name: str) -> None:
    bound = getattr(cudnn._pybind_module, "backend_graph", None) or cudnn._pybind_module.pygraph
    signature = getattr(bound, name).__doc__.partition(") ->")[0]
    own = set(inspect.signature(getattr(fake_cudnn.pygraph, name)).parameters)
    assert own <= set(re.findall(r"(\w+): ", signature)) | {"self"}
