"""The benchmarks with programs and goals of their own, each a row."""

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
    overhead,
    passes,
    plugin_discovery,
    saved_bytes,
    shapes,
    training,
    values,
)
from benchmarks.implementations import COMPARED
from benchmarks.row import Row


@dataclass(frozen=True)
class Figure:
    """A benchmark.

    Attributes:
        help: what it measures.
        measure: from threads, and the names of implementations if it takes them, to rows.
        implementations: those that are measured unless others are named; empty if it takes no names.
        metrics: what it shows of a model that is named with ``--model``; empty if it takes no models.
    """

    help: str
    measure: Callable[..., list[Row]]
    implementations: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()

    def rows(self, threads: int, names: list[str] | None = None) -> list[Row]:
        """Measure."""
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
    "import-time": Figure("import thunder beyond import torch", imports.measure),
    "dispatch": Figure("60 cache entries, oldest against newest", dispatch.measure, COMPARED),
    "shapes": Figure("programs with sizes that vary, beside those with constant ones", shapes.measure),
    "values": Figure("programs whose Python depends on values", values.measure),
    "generation": Figure("text generation with models of Hugging Face", generation.measure),
    "dynamo": Figure("cached calls with Dynamo as the front end, and without", dynamo.measure),
    "memory": Figure(
        "peak memory of forward calls; with --model, of its training",
        memory.measure,
        COMPARED,
        ("allocated", "reserved", "resident"),
    ),
    "training": Figure("forward and backward of a small Llama, in turns", training.measure, training.COMPARED),
    "saved-bytes": Figure("what a forward pass keeps for its backward pass", saved_bytes.measure),
    "claiming": Figure("asking executors for each line of Llama-2-7B", claiming.measure),
    "passes": Figure("programs without and with each pass that can be left out", passes.measure),
    "plugin-discovery": Figure("which plugins are installed, among 150 distributions", plugin_discovery.measure),
}
