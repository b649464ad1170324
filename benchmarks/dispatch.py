"""Time of dispatch to one of sixty cache entries: the oldest, the newest, and all in rotation."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.implementations import compile_with
from benchmarks.process import in_fresh_process
from benchmarks.row import Row, reached_by_thunder

ENTRIES = 60
KEYS = ("shape", "int argument", "module attribute")


def measure(threads: int, implementations: list[str]) -> list[Row]:
    """Measure, and return the rows."""
    results = [(key, _seconds(key, threads, implementations)) for key in KEYS]
    return [row for key, seconds in results for row in _rows(key, seconds)]


def _seconds(key: str, threads: int, names: list[str]) -> dict[str, dict[str, float]]:
    # Separate processes, because the garbage of sixty entries would slow the next implementation.
    run = functools.partial(in_fresh_process, seconds_by_entry, threads=threads, key=key)
    return {name: run(name=name) for name in names}


def _rows(key: str, seconds: dict[str, dict[str, float]]) -> list[Row]:
    rows = []
    labels = {"only": "1 entry", "oldest": f"oldest of {ENTRIES}", "newest": "newest", "in turn": "all in turn"}
    for which, label in labels.items():
        values = {name: one[which] * 1e6 for name, one in seconds.items()}
        what = f"by {key}: {label}"
        rows.append(Row("dispatch", what, "us", values, {}))
    ratios = {name: max(list(one.values())[1:]) / min(list(one.values())[1:]) for name, one in seconds.items()}
    what = f"by {key}: slowest / fastest of the three"
    rows.append(Row("dispatch", what, "x", ratios, {}, "<= 2x", reached_by_thunder(ratios, lambda ratio: ratio <= 2)))
    return rows


def seconds_by_entry(key: str, name: str) -> dict[str, float]:
    """Median seconds of a call that uses a single entry, and of sixty the oldest, the newest, and all in rotation.

    torch.compile uses its ``eager`` backend here: dispatch is the same, and sixty compilations with Inductor would take
    minutes.
    """
    from benchmarks.timing import interleaved_medians

    select = {"shape": _by_shape, "int argument": _by_argument, "module attribute": _by_attribute}[key]
    choose = select(functools.partial(_compile, name))
    choose(0)()
    only = interleaved_medians({"only": _settled(choose(0))})
    for entry in range(ENTRIES):
        choose(entry)()
    oldest, newest = choose(0), choose(ENTRIES - 1)
    start = time.perf_counter()
    oldest(), newest()
    assert time.perf_counter() - start < 0.05, "the entries were evicted"
    # Repeated calls with one entry favor a cache that tries the last entry first; a rotation does not.
    in_turn = itertools.cycle([choose(entry) for entry in range(ENTRIES)])
    calls = {"oldest": _settled(oldest), "newest": _settled(newest), "in turn": lambda: next(in_turn)()}
    return only | interleaved_medians(calls)


def _compile(name: str, program: Callable[..., Any]) -> Callable[..., Any]:
    if not name.startswith("compile"):
        return compile_with(name, program, entries=ENTRIES)
    import torch
    import torch._dynamo

    torch._dynamo.config.recompile_limit = ENTRIES + 1
    torch._dynamo.config.allow_unspec_int_on_nn_module = False
    return torch.compile(program, dynamic=False, fullgraph=True, backend="eager")


def _settled(call: Callable[[], object]) -> Callable[[], object]:
    for _ in range(3):
        call()
    return call


def _by_shape(compile_: Callable[..., Any]) -> Callable[[int], Callable[[], object]]:
    import torch

    function = compile_(lambda x: x + 1)
    tensors = [torch.zeros(entry + 2) for entry in range(ENTRIES)]
    return lambda entry: lambda tensor=tensors[entry]: function(tensor)


def _by_argument(compile_: Callable[..., Any]) -> Callable[[int], Callable[[], object]]:
    import torch

    function = compile_(lambda x, n: x + n)
    tensor = torch.zeros(4)
    return lambda entry: lambda: function(tensor, entry + 2)


def _by_attribute(compile_: Callable[..., Any]) -> Callable[[int], Callable[[], object]]:
    import torch

    class Scale(torch.nn.Module):
        factor = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    module = Scale()
    compiled = compile_(module)
    tensor = torch.zeros(4)

    def choose(entry: int) -> Callable[[], object]:
        def call() -> object:
            module.factor = entry + 2
            return compiled(tensor)

        return call

    return choose
