"""The table of benchmarks with fixed programs and goals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import (
    claiming,
    compile_time,
    dispatch,
    dynamo,
    generation,
    imports,
    memory,
    memory_budgets,
    overhead,
    passes,
    plugin_discovery,
    saved_bytes,
    shapes,
    training,
    values,
    waiting,
)
from benchmarks.implementations import COMPARED
from benchmarks.row import Row


@dataclass(frozen=True)
class Figure:
    """A benchmark.

    Attributes:
        help: the measured quantity.
        measure: from the number of threads, and implementations if ``implementations`` is not empty, to rows.
        implementations: the default implementations; empty if ``--impl`` is not supported.
        metrics: the metrics that are shown with ``--model``; empty if ``--model`` is not supported.
        tasks: the tasks of the models of ``--model``.
    """

    help: str
    measure: Callable[..., list[Row]]
    implementations: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("training",)

    def rows(self, threads: int, names: list[str] | None = None) -> list[Row]:
        """Measure, with ``names`` as the implementations if they can be chosen."""
        return (
            self.measure(threads, names or list(self.implementations))
            if self.implementations
            else self.measure(threads)
        )


FIGURES = {
    "overhead": Figure("cached calls; with --model, its steps", overhead.measure, COMPARED, ("step", "host")),
    "compile-time": Figure(
        "acquisition of Llama-2-7B, first calls; with --model, its first step",
        compile_time.measure,
        COMPARED,
        ("cold", "warm"),
    ),
    "waiting": Figure("training steps while kernels are compiled before or behind them", waiting.measure),
    "import-time": Figure("import thunder beyond import torch", imports.measure),
    "dispatch": Figure("60 cache entries, oldest against newest", dispatch.measure, COMPARED),
    "shapes": Figure("programs with symbolic and with constant sizes", shapes.measure),
    "values": Figure("programs whose control flow depends on values of tensors", values.measure),
    "generation": Figure(
        "text generation with Hugging Face models, per token",
        generation.measure,
        generation.COMPARED,
        generation.METRICS,
        ("generation",),
    ),
    "dynamo": Figure("cached calls with Dynamo as the front end, and without", dynamo.measure),
    "memory": Figure(
        "peak memory of forward calls; with --model, of its training",
        memory.measure,
        COMPARED,
        ("allocated", "reserved", "resident"),
    ),
    "memory-budgets": Figure("ten budgets of memory: predicted and measured peaks", memory_budgets.measure),
    "training": Figure("forward and backward of a small Llama, in turns", training.measure, training.COMPARED),
    "saved-bytes": Figure("bytes that a forward pass saves for backward", saved_bytes.measure),
    "claiming": Figure("assignment of executors to the operations of Llama-2-7B", claiming.measure),
    "passes": Figure("programs without and with each optional pass", passes.measure),
    "plugin-discovery": Figure("discovery of plugins among 150 distributions", plugin_discovery.measure),
}
