"""Programs whose control flow depends on values of tensors: time of cached calls, and number of compilations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.process import in_fresh_process
from benchmarks.row import Row

CASES = {
    "branch": "x @ w, gelu, branch on x.sum() > 0 with the same outcome in each call",
    "alternating": "the same with alternating outcomes",
    "number": "the same scaled by .item(), with a different value in each call",
    "mask": "x[x > 0], with the same number of elements in each call",
}
WITHOUT = "thunder[], without the check"
"""The program for one outcome, which reads the value without checking it."""


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    return [row for case in CASES for row in _rows(case, in_fresh_process(figures, threads=threads, case=case))]


def _rows(case: str, results: dict[str, dict[str, float]]) -> list[Row]:
    calls = {name: seconds * 1e6 for name, seconds in results["seconds"].items()}
    return [
        Row("cached call that reads a value", CASES[case], "us", calls, {}),
        Row("compilations for 100 calls", CASES[case], "", results["compilations"], {}),
    ]


def figures(case: str) -> dict[str, dict[str, float]]:
    """Median seconds of a cached call, and number of compilations for 100 calls, by implementation."""
    import torch

    import thunder
    from benchmarks.timing import interleaved_medians

    program, without = _programs(case)
    weight = torch.randn(256, 256, generator=torch.Generator().manual_seed(0)) / 16
    arguments = [_argument(case, index, torch) for index in range(100)]
    graphs: list[Any] = []

    def backend(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    compiled: dict[str, Callable[..., Any]] = {
        "eager": program,
        "compile": torch.compile(program, backend=backend),
        "thunder[]": thunder.jit(program, executors=[]),
        WITHOUT: thunder.jit(without, executors=[]),
    }
    with torch.no_grad():
        for name, function in compiled.items():
            for argument in arguments:
                if name != WITHOUT:
                    torch.testing.assert_close(function(argument, weight), program(argument, weight))
                else:
                    function(argument, weight)
        places = dict.fromkeys(compiled, 0)

        def call(name: str) -> Any:
            places[name] = (places[name] + 1) % len(arguments)
            return compiled[name](arguments[places[name]], weight)

        seconds = interleaved_medians({name: lambda name=name: call(name) for name in compiled})
    compilations = {
        "compile": float(len(graphs)),
        "thunder[]": float(len(thunder.explain(compiled["thunder[]"]).entries)),
    }
    return {"seconds": seconds, "compilations": compilations}


def _argument(case: str, index: int, torch: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(64, 256, generator=generator) + (index / 100 if case == "number" else 0.0)
    return -x if case == "alternating" and index % 2 else x


def _programs(case: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The program, and the program for its first outcome without the check."""
    import torch

    def body(x: Any, weight: Any) -> Any:
        return torch.nn.functional.gelu(x @ weight) + x

    def branch(x: Any, weight: Any) -> Any:
        y = body(x, weight)
        return y * 2 if x.sum() > 0 else y * 3

    def branch_without(x: Any, weight: Any) -> Any:
        y = body(x, weight)
        return y * 2, (x.sum() > 0).sum().item()

    def number(x: Any, weight: Any) -> Any:
        return body(x, weight) * x.sum().item()

    def number_without(x: Any, weight: Any) -> Any:
        return body(x, weight) * x.sum(), x.sum().item()

    def mask(x: Any, weight: Any) -> Any:
        y = body(x, weight)
        return y[x > 0] * 2

    def mask_without(x: Any, weight: Any) -> Any:
        y = body(x, weight)
        return torch.nonzero_static(x > 0, size=x.numel()), y * 2

    if case == "number":
        return number, number_without
    return (mask, mask_without) if case == "mask" else (branch, branch_without)
