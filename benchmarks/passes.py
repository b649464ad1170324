"""Time of programs without and with each optional pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from benchmarks.process import in_fresh_process
from benchmarks.row import Row
from benchmarks.timing import interleaved_medians


@dataclass(frozen=True)
class Case:
    """A pass and a program.

    Attributes:
        name: the transform.
        what: description of the program.
        make: name of a function of this module that returns the program and its arguments.
        backward: whether gradients are computed.
        autocast: whether the program runs under bfloat16 autocast.
        sizes: arguments of the function.
    """

    name: str
    what: str
    make: str
    backward: bool = False
    autocast: bool = False
    sizes: tuple[int, ...] = ()


CASES = (
    Case("accumulate_products", "a block of TinyLlama 1.1B, 1x64, forward and backward", "block", True, sizes=(64,)),
    Case("accumulate_products", "backward of q, k, v: 128x2048 from three layers", "projections", True),
    Case("fold_transposes", "x.t().contiguous() @ w, 1024x1024, forward and backward", "transposed", True),
    Case("dtype_round_trips", "a block of TinyLlama 1.1B under autocast, 1x16", "block", True, True, (16,)),
    Case("merge_matmuls", "a block of TinyLlama 1.1B, one token", "block", sizes=(1,)),
    Case("cache_weight_casts", "a block of TinyLlama 1.1B under autocast, one token", "block", False, True, (1,)),
)


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    rows = []
    for index, case in enumerate(CASES):
        seconds = in_fresh_process(times, threads=threads, index=index)
        values = {name: value * 1e3 for name, value in seconds.items()}
        before, after = seconds.values()
        rows.append(
            Row("passes", f"{case.name}: {case.what}", "ms", values, {}, "<= 1.02 x without", after <= 1.02 * before)
        )
    return rows


def times(index: int, rounds: int = 9) -> dict[str, float]:
    """Median seconds of a call without the pass and with it."""
    import torch

    import thunder

    case = CASES[index]
    torch.manual_seed(0)
    program, arguments = globals()[case.make](*case.sizes)
    mode = torch.enable_grad() if case.backward else torch.no_grad()
    calls = {}
    for name, transforms in (("thunder[]", []), (f"thunder[+{case.name}]", [case.name])):
        compiled = thunder.jit(program, executors=[], transforms=transforms)
        calls[name] = _call(compiled, arguments, case)
    with mode:
        for call in calls.values():
            call()
        return interleaved_medians(calls, rounds=rounds)


def _call(compiled: Callable[..., Any], arguments: tuple[Any, ...], case: Case) -> Callable[[], object]:
    import torch

    def call() -> object:
        with torch.autocast("cpu", torch.bfloat16) if case.autocast else nullcontext():
            result = compiled(*arguments)
        return result.backward(torch.ones_like(result)) if case.backward else result

    return call


def block(sequence: int) -> tuple[Any, tuple[Any, ...]]:
    """A block of TinyLlama."""
    from benchmarks.programs import tiny_llama_block

    return tiny_llama_block(sequence)


def projections() -> tuple[Any, tuple[Any, ...]]:
    """Three linear layers with the same input."""
    import torch
    from torch import nn

    class Projections(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(2048, size, bias=False) for size in (2048, 256, 256))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.q(x), self.k(x), self.v(x)], -1)

    return Projections(), (torch.randn(1, 128, 2048, requires_grad=True),)


def transposed() -> tuple[Any, tuple[Any, ...]]:
    """A matmul with a copy of a transposed matrix."""
    import torch

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous() @ w

    return program, (torch.randn(1024, 1024, requires_grad=True), torch.randn(1024, 1024, requires_grad=True))
