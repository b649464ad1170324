"""Compiles kernels for an H100 or H200 without one: `python ahead_of_time.py` prints which, and how many of each.

Programs run by the plugin on CPU tensors, with each candidate of each launch, and kernels are compiled instead of
launched; so results are whatever was in memory. With a number as argument, the first candidate of each launch is
compiled, and one of the others: another one for each number. It has to be a process of its own, without Triton's
interpreter.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

import thunder
from thunder_plugin_triton import conditions, layer_norm_calls, rms_norm_calls, tuning

HOPPER = GPUTarget("cuda", 90, 32)
PROCESSORS = 132


class Compiler:
    """In the place of Triton's driver."""

    def get_current_target(self) -> GPUTarget:
        """What is compiled for."""
        return HOPPER

    def get_current_device(self) -> int:
        """Any."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """None is used."""
        return 0


def compile_everything(dtype: torch.dtype, seed: int | None) -> Counter[str]:
    """How many variants of each kernel were compiled; two candidates of each launch with a seed."""
    compiled: Counter[str] = Counter()
    run = triton.JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        run(kernel, *args, grid=grid, warmup=True, **options)
        compiled[f"{kernel.module.rpartition('.')[2]}.{kernel.__name__}"] += 1

    def launch_all(tunable: tuning.Tunable, device: torch.device, key: tuning.Key, launch: tuning.Launch) -> None:
        first, *others = tunable.candidates(*key)
        for candidate in (first, *(others if seed is None or not others else [others[seed % len(others)]])):
            launch(candidate)

    triton.runtime.driver.set_active(Compiler())
    triton.JITFunction.run = compile_only
    tuning.Tunable.run = launch_all  # type: ignore[method-assign]
    conditions.refusal_of_device = lambda device: None
    for module in (layer_norm_calls, rms_norm_calls):
        module.processors = lambda device: PROCESSORS
    for program, arguments in programs(dtype):
        result = thunder.jit(program, executors=["triton"])(*arguments)
        result.sum().backward()
    return compiled


def programs(dtype: torch.dtype) -> Iterator[tuple[Any, list[Tensor]]]:
    """One for each operation, at the width of a small model."""

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype, requires_grad=True)

    x, weight, bias = random(64, 2048), random(2048), random(2048)
    yield (lambda x, w: F.rms_norm(x, w.shape, w)), [x, weight]
    yield (lambda x, w, b: F.layer_norm(x, w.shape, w, b)), [x, weight, bias]
    target = torch.zeros(64, dtype=torch.int64)
    yield (lambda x: F.cross_entropy(x, target)), [random(64, 32000)]
    yield (lambda x, w: F.cross_entropy(F.linear(x, w), target)), [random(64, 128), random(32000, 128)]
    yield (lambda x: F.softmax(x, -1)), [x]
    yield (lambda x: F.softmax(x, -1)), [random(4, 65536)]
    yield (lambda x, y: F.silu(x) * y), [x, random(64, 2048)]
    yield (lambda x, y: F.gelu(x) * y), [x, random(64, 2048)]
    cos, sin = torch.randn(2, 16, 64, dtype=dtype)

    def rotated(x: Tensor) -> Tensor:
        half = x.size(-1) // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    yield rotated, [random(2, 4, 16, 64)]


if __name__ == "__main__":
    print(json.dumps(compile_everything(torch.bfloat16, int(sys.argv[1]) if sys.argv[1:] else None)))
